//! `svc_template`, from which the databases of projects are created.
//!
//! In the template, tenants have no privileges on the views and functions that show the activity of the whole cluster.
//! The template records this as its initial privileges (`pg_init_privs`), so that a dump of a project's database does
//! not contain them.

use anyhow::Context as _;
use tokio_postgres::Client;

use super::admin::quote_literal;
use super::server::Server;

/// The name of the template.
pub const TEMPLATE: &str = "svc_template";

/// The comment of a complete template. Change it together with [`RESTRICT`] and [`CREATE`]: a template with another
/// comment is created again.
const COMPLETE: &str = "complete, version 3";

/// Creates the template. Encoding and locale do not depend on those of the cluster, which can even be `SQL_ASCII`. With
/// the collation `C`, the order of texts does not depend on the C library, and an index can find a prefix.
const CREATE: &str = "TEMPLATE template0 ENCODING 'UTF8' LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C.UTF-8' \
     ALLOW_CONNECTIONS false";

/// Closes the activity of the cluster to tenants.
const RESTRICT: &str = include_str!("../../../../deploy/postgres/restrict.sql");

/// Creates the template, unless a complete one exists. `own` is a connection to `svc_node`.
pub async fn create(own: &Client, server: &Server) -> anyhow::Result<()> {
    const FIND: &str = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = $1";
    let found = own.query_opt(FIND, &[&TEMPLATE]).await?;
    if found.and_then(|row| row.get::<_, Option<String>>(0)).as_deref() == Some(COMPLETE) {
        return Ok(());
    }
    own.batch_execute(&format!("DROP DATABASE IF EXISTS {TEMPLATE} WITH (FORCE)")).await?;
    own.batch_execute(&format!("CREATE DATABASE {TEMPLATE} {CREATE}"))
        .await
        .context("failed to create svc_template")?;
    let open =
        format!("REVOKE ALL ON DATABASE {TEMPLATE} FROM PUBLIC; ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS true");
    own.batch_execute(&open).await?;
    let template = server.connect(Some(TEMPLATE)).await.context("failed to connect to svc_template")?;
    template.batch_execute(RESTRICT).await.context("failed to restrict svc_template")?;
    drop(template);
    let complete = quote_literal(COMPLETE);
    // A template with sessions cannot be copied.
    let close =
        format!("ALTER DATABASE {TEMPLATE} ALLOW_CONNECTIONS false; COMMENT ON DATABASE {TEMPLATE} IS {complete}");
    Ok(own.batch_execute(&close).await?)
}
