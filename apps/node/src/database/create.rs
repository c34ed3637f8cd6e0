//! Creation and removal of databases.

use protocol::GenerationRef;
use tokio_postgres::error::SqlState;

use super::Shared;
use super::admin::{AdminConnection, quote_ident};
use super::names::{self, Names};
use super::server::Credentials;
use super::tables;
use super::template::TEMPLATE;

/// Creates an empty database that refuses all logins.
pub async fn create(shared: &Shared, client: &AdminConnection, name: &str, owner: &str) -> anyhow::Result<()> {
    let (quoted, owner) = (quote_ident(name), quote_ident(owner));
    // Without ALLOW_CONNECTIONS, it would admit every role until its privileges are set.
    let create = format!("CREATE DATABASE {quoted} OWNER {owner} TEMPLATE {TEMPLATE} ALLOW_CONNECTIONS false");
    match client.batch_execute(&create).await {
        Ok(()) => Ok(()),
        Err(error) if error.code() == Some(&SqlState::DUPLICATE_DATABASE) => Ok(()),
        Err(error) => {
            if error.code() == Some(&SqlState::INVALID_CATALOG_NAME) {
                shared.admin.invalidate().await;
            }
            Err(error.into())
        }
    }
}

/// Drops a database, if it exists.
pub async fn remove(client: &AdminConnection, name: &str) -> anyhow::Result<()> {
    Ok(client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quote_ident(name))).await?)
}

/// Whether a database exists.
pub async fn exists(client: &AdminConnection, name: &str) -> anyhow::Result<bool> {
    Ok(client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await?.is_some())
}

/// The size of a database in bytes; `None` if it does not exist.
pub async fn size(client: &AdminConnection, name: &str) -> anyhow::Result<Option<u64>> {
    const SIZE: &str = "SELECT pg_database_size(oid) FROM pg_database WHERE datname = $1";
    let row = client.query_opt(SIZE, &[&name]).await?;
    Ok(row.map(|row| u64::try_from(row.get::<_, i64>(0)).unwrap_or_default()))
}

/// Creates a database that contains a generation, next to the project's database. `cause` identifies it: the id of the
/// operation or of the missing database. A complete one is kept.
pub async fn prepare(
    shared: &Shared,
    project: &str,
    names: &Names,
    backups: &Credentials,
    cause: &str,
    generation: &GenerationRef,
) -> anyhow::Result<()> {
    const BEGIN: &str = "UPDATE svc.databases SET prepared_operation = $2, is_prepared = false WHERE project = $1";
    const COMPLETE: &str = "UPDATE svc.databases SET is_prepared = true WHERE project = $1 AND prepared_operation = $2";
    let Some(name) = names::prepared(cause) else { anyhow::bail!("the id {cause} is malformed") };
    let client = shared.admin.connect().await?;
    if is_prepared(&client, project, cause).await? {
        return Ok(());
    }
    discard(&client, project).await?;
    client.execute(BEGIN, &[&project, &cause]).await?;
    remove(&client, &name).await?;
    create(shared, &client, &name, &names.database()).await?;
    let (database, login) = (quote_ident(&name), quote_ident(&names.dump()));
    let admit = format!(
        "REVOKE ALL ON DATABASE {database} FROM PUBLIC; GRANT CONNECT ON DATABASE {database} TO {login}; \
         ALTER DATABASE {database} ALLOW_CONNECTIONS true"
    );
    client.batch_execute(&admit).await?;
    // Not while the archive is restored, which can take hours.
    drop(client);
    tracing::info!(project, cause, key = generation.key, "restoring a generation into a new database");
    shared.backups.restore(generation, &backups.in_database(&name)).await?;
    shared.admin.connect().await?.execute(COMPLETE, &[&project, &cause]).await?;
    tracing::info!(project, cause, "the new database is complete");
    Ok(())
}

/// Whether the prepared database exists and is complete.
pub async fn is_prepared(client: &AdminConnection, project: &str, cause: &str) -> anyhow::Result<bool> {
    let row = tables::find(&**client, project).await?;
    let is_recorded = row.is_some_and(|row| row.is_prepared && row.prepared_operation.as_deref() == Some(cause));
    match names::prepared(cause) {
        Some(name) if is_recorded => exists(client, &name).await,
        _ => Ok(false),
    }
}

/// Drops the prepared database of a project, if it has one.
pub async fn discard(client: &AdminConnection, project: &str) -> anyhow::Result<()> {
    const DISCARD: &str = "UPDATE svc.databases SET prepared_operation = NULL, is_prepared = false WHERE project = $1";
    let row = tables::find(&**client, project).await?;
    let Some(cause) = row.and_then(|row| row.prepared_operation) else { return Ok(()) };
    if let Some(name) = names::prepared(&cause) {
        remove(client, &name).await?;
    }
    client.execute(DISCARD, &[&project]).await?;
    Ok(())
}
