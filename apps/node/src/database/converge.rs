//! Changes the roles and privileges of a database until they are the desired ones.

use anyhow::bail;
use tokio_postgres::error::SqlState;

use super::admin::{AdminConnection, quote_ident};
use super::logins::DesiredRoles;
use super::plan::Plan;
use super::server::Credentials;
use super::sessions::terminate_holders;
use super::snapshot::{Filter, Snapshot};

/// The largest number of plans until the state is the desired one. One change can require a second plan: for example, a
/// role is created, then closed, then dropped.
const MAX_PLANS: usize = 7;
/// The number of attempts to execute the statements of a plan while a tenant changes the same roles.
const MAX_ATTEMPTS: i32 = 6;
/// The longest wait for a lock. A tenant can hold it for as long as it wants.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '1s'";

/// The result of [`converge`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Converged {
    /// Whether the database does not exist.
    pub is_missing: bool,
    /// Whether the default access mode of sessions changed.
    pub changed_access_mode: bool,
}

/// Changes everything that differs from the desired state. `backups` is the login that removes the objects of revoked
/// roles.
///
/// # Errors
/// Returns an error if a statement fails, or if a tenant keeps changing the roles at the same time.
pub async fn converge(
    client: &AdminConnection,
    desired: &DesiredRoles,
    backups: &Credentials,
) -> anyhow::Result<Converged> {
    let (database, roles) = (desired.names.database(), desired.role_names());
    let filter = Filter::Project { database: &database, roles: &roles };
    let mut converged = Converged::default();
    for _ in 0..MAX_PLANS {
        let plan = Plan::new(desired, &Snapshot::read(&**client, &filter).await?);
        converged.is_missing = plan.is_missing;
        converged.changed_access_mode |= plan.changes_access_mode;
        for refusal in &plan.refusals {
            execute(client, refusal, &database, &roles).await?;
        }
        if plan.statements.is_empty() && !plan.refusals.is_empty() {
            continue;
        }
        if plan.statements.is_empty() {
            for role in &plan.unused {
                remove_role(client, role, &database, backups).await;
            }
            return Ok(converged);
        }
        tracing::debug!(database, statements = plan.statements.len(), "changing roles and privileges");
        execute(client, &plan.statements.join(";\n"), &database, &roles).await?;
    }
    bail!("the roles of {database} change again and again")
}

/// Executes statements in one transaction. A login can change its own role, and the owner can change its database. A
/// session that does this in a transaction and leaves it open blocks the node, so the node terminates that session.
async fn execute(client: &AdminConnection, statements: &str, database: &str, roles: &[String]) -> anyhow::Result<()> {
    // Postgres executes the batch as one implicit transaction.
    let statements = format!("{LOCK_TIMEOUT};\n{statements}");
    for attempt in 1..MAX_ATTEMPTS {
        match client.batch_execute(&statements).await {
            Ok(()) => return Ok(()),
            Err(error) if is_conflict(&error) => {
                let ended = terminate_holders(client, database, roles, attempt - 1).await?;
                let code = error.code().map(SqlState::code);
                tracing::warn!(database, ended, code, "ended the sessions that block a change of roles");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(client.batch_execute(&statements).await?)
}

/// Returns whether a statement failed because another session changed the same row of a catalog, or has it locked.
fn is_conflict(error: &tokio_postgres::Error) -> bool {
    // "tuple concurrently updated" is an internal error.
    error.code().is_some_and(|code| *code == SqlState::LOCK_NOT_AVAILABLE || *code == SqlState::INTERNAL_ERROR)
}

/// Drops a role that owns objects of a database or has privileges on them. The objects pass to the owner of the
/// database. The session in the database uses the login of backups, because a superuser must not open one there.
async fn remove_role(client: &AdminConnection, role: &str, database: &str, backups: &Credentials) {
    let (quoted, owner) = (quote_ident(role), quote_ident(database));
    let remove = async {
        // The owner becomes a member of the role, as `REASSIGN` requires.
        client.batch_execute(&format!("REVOKE {owner} FROM {quoted}; GRANT {quoted} TO {owner}")).await?;
        let session = backups.connect().await?;
        session.batch_execute("SET lock_timeout = '1s'; SET statement_timeout = '20s'").await?;
        session.batch_execute(&format!("REASSIGN OWNED BY {quoted} TO {owner}; DROP OWNED BY {quoted}")).await?;
        client.batch_execute(&format!("REVOKE {quoted} FROM {owner}; DROP ROLE {quoted}")).await?;
        anyhow::Ok(())
    };
    if let Err(error) = remove.await {
        // The role remains, but cannot log in. It is dropped with the last tombstone (a replaced or removed database,
        // kept for some days) that refers to it.
        tracing::info!(role, error = format!("{error:#}"), "a revoked role stays: objects refer to it");
    }
}
