//! Creation and removal of databases.

use std::sync::Arc;

use protocol::GenerationRef;
use tokio_postgres::error::SqlState;

use super::Shared;
use super::admin::{AdminConnection, quote_ident};
use super::backup::BackupError;
use super::load::LoadTarget;
use super::names::{self, Names};
use super::tables;
use super::template::TEMPLATE;

/// A restored database may grow to this multiple of its size limit, or to the size above which the present database
/// refuses its logins, if that is larger.
const MAX_GROWTH: u64 = 4;

/// The limits of the size of a database in a step.
#[derive(Debug, Clone, Copy)]
pub struct SizeLimits {
    /// The size limit of the plan.
    pub plan_bytes: u64,
    /// The size at which a restore fails; `None` for no limit.
    max_bytes: Option<u64>,
}

impl SizeLimits {
    /// Returns the limits of an operation that may still fail. `max_login_bytes` is the size above which the present
    /// database refuses its logins. So a generation that is as large as this database can be restored after the limit
    /// of the plan fell.
    pub fn of_operation(plan_bytes: u64, max_login_bytes: u64) -> Self {
        Self { plan_bytes, max_bytes: Some(plan_bytes.saturating_mul(MAX_GROWTH).max(max_login_bytes)) }
    }

    /// Returns the limits of a restore that must complete, because the database is missing or the operation cannot be
    /// aborted.
    pub const fn without_maximum(self) -> Self {
        Self { max_bytes: None, ..self }
    }
}

/// Creates an empty database that refuses all logins. Without `owner`, it belongs to the superuser.
pub async fn create(shared: &Shared, client: &AdminConnection, name: &str, owner: Option<&str>) -> anyhow::Result<()> {
    let (quoted, owner) = (quote_ident(name), owner.map(|owner| format!("OWNER {}", quote_ident(owner))));
    let owner = owner.unwrap_or_default();
    // Without the limit, which does not apply to superusers, the database would admit every role until its privileges
    // are set.
    let create = format!("CREATE DATABASE {quoted} {owner} TEMPLATE {TEMPLATE} CONNECTION LIMIT 0");
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

/// Returns whether a database exists.
pub async fn exists(client: &AdminConnection, name: &str) -> anyhow::Result<bool> {
    Ok(client.query_opt("SELECT FROM pg_database WHERE datname = $1", &[&name]).await?.is_some())
}

/// Creates a database from a generation, next to the project's database. `cause` identifies the new database: it is the
/// id of the operation, or of the missing database. Does nothing if the database of this cause is already complete and
/// was prepared from this generation: for a missing database, the part can later name another one. The new database
/// belongs to the superuser until it replaces the project's database.
pub async fn prepare(
    shared: &Shared,
    project: &str,
    names: &Names,
    limits: SizeLimits,
    cause: &str,
    generation: &GenerationRef,
) -> anyhow::Result<()> {
    const BEGIN: &str = "
        UPDATE svc.databases SET prepared_operation = $2, prepared_key = $3, is_prepared = false WHERE project = $1";
    const COMPLETE: &str = "
        UPDATE svc.databases SET is_prepared = true
        WHERE project = $1 AND prepared_operation = $2 AND prepared_key = $3";
    let Some(name) = names::prepared(cause) else { anyhow::bail!("the id {cause} is malformed") };
    let client = shared.admin.connect().await?;
    let row = tables::find(&*client, project).await?;
    let is_same = row.and_then(|row| row.prepared_key).as_ref() == Some(&generation.key);
    if is_same && is_prepared(&client, project, cause).await? {
        return Ok(());
    }
    // The row must name the database of this cause as long as it exists. Otherwise a sweep could drop the one that is
    // created next.
    discard(&client, project, Some(cause)).await?;
    client.execute(BEGIN, &[&project, &cause, &generation.key]).await?;
    remove(&client, &name).await?;
    create(shared, &client, &name, None).await?;
    let database = quote_ident(&name);
    let admit = format!("REVOKE ALL ON DATABASE {database} FROM PUBLIC; ALTER DATABASE {database} CONNECTION LIMIT -1");
    client.batch_execute(&admit).await?;
    // The connection is released before the archive is restored, which can take hours.
    drop(client);
    tracing::info!(project, cause, key = generation.key, "restoring a generation into a new database");
    let target =
        LoadTarget::new(shared.admin.clone(), Arc::clone(&shared.address), names.clone(), name, limits.plan_bytes);
    let restored = shared.backups.restore(generation, &target, limits.max_bytes).await;
    if restored.as_ref().is_err_and(BackupError::is_permanent) {
        let client = shared.admin.connect().await?;
        target.close().await?;
        discard(&client, project, None).await?;
    }
    restored?;
    shared.admin.connect().await?.execute(COMPLETE, &[&project, &cause, &generation.key]).await?;
    tracing::info!(project, cause, "the new database is complete");
    Ok(())
}

/// Returns whether the prepared database exists and is complete.
pub async fn is_prepared(client: &AdminConnection, project: &str, cause: &str) -> anyhow::Result<bool> {
    let row = tables::find(&**client, project).await?;
    let is_recorded = row.is_some_and(|row| row.is_prepared && row.prepared_operation.as_deref() == Some(cause));
    match names::prepared(cause) {
        Some(name) if is_recorded => exists(client, &name).await,
        _ => Ok(false),
    }
}

/// Drops the prepared database of a project, if it has one, unless its cause is `kept`.
pub async fn discard(client: &AdminConnection, project: &str, kept: Option<&str>) -> anyhow::Result<()> {
    const DISCARD: &str = "
        UPDATE svc.databases SET prepared_operation = NULL, is_prepared = false
        WHERE project = $1 AND prepared_operation = $2";
    let row = tables::find(&**client, project).await?;
    let cause = row.and_then(|row| row.prepared_operation).filter(|cause| Some(cause.as_str()) != kept);
    let Some(cause) = cause else { return Ok(()) };
    if let Some(name) = names::prepared(&cause) {
        remove(client, &name).await?;
    }
    client.execute(DISCARD, &[&project, &cause]).await?;
    Ok(())
}
