//! Changes the roles and privileges of a database until they are the desired ones.

use anyhow::bail;
use tokio_postgres::error::SqlState;

use super::admin::AdminConnection;
use super::logins::DesiredRoles;
use super::plan::Plan;
use super::sessions::terminate_holders;
use super::snapshot::{Filter, Snapshot};

/// The largest number of plans until the state is the desired one. One change can require a second plan: for example, a
/// role is created, then closed, then dropped.
const MAX_PLANS: usize = 7;
/// The number of attempts to execute the statements of a plan while a tenant changes the same roles.
const MAX_ATTEMPTS: i32 = 6;
/// The longest wait for a lock. A tenant can hold it for as long as it wants.
pub const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '1s'";

/// The result of [`converge`].
#[derive(Debug, Default, Clone, Copy)]
pub struct Converged {
    /// Whether the database does not exist.
    pub is_missing: bool,
    /// Whether the default access mode of sessions changed.
    pub changed_access_mode: bool,
}

/// Changes everything that differs from the desired state.
///
/// # Errors
/// Returns an error if a statement fails, or if a tenant keeps changing the roles at the same time.
pub async fn converge(client: &AdminConnection, desired: &DesiredRoles) -> anyhow::Result<Converged> {
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
