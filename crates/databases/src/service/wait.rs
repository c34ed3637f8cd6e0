//! Waits for the result of a node. A wait holds no connection, and may be dropped at any time.

use std::time::Duration;

use kernel::ProjectId;
use store::Connection;
use tokio::time::Instant;

use super::Result;
use crate::error::DatabaseError;
use crate::repository::ProjectRepository as _;

/// The interval of the first polls.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

/// The time after which a wait polls only at long intervals, because an export can take minutes.
const FIRST_PERIOD: Duration = Duration::from_secs(10);

const LONG_INTERVAL: Duration = Duration::from_millis(500);

/// The polls of a wait.
pub(super) struct Polls {
    start: Instant,
    timeout: Duration,
}

impl Polls {
    /// Starts a wait.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { start: Instant::now(), timeout }
    }

    /// Returns `Some` if the wait has ended. It then contains the result of the poll, or `None` at the timeout.
    /// Otherwise sleeps until the next poll. Repeats a poll that failed because Postgres was unavailable.
    pub(super) async fn end<T>(&self, polled: store::Result<Option<T>>) -> Option<Result<Option<T>>> {
        let waited = self.start.elapsed();
        match polled {
            Ok(Some(value)) => return Some(Ok(Some(value))),
            Ok(None) if waited >= self.timeout => return Some(Ok(None)),
            Ok(None) => {}
            Err(store::Error::Unavailable(_)) if waited < self.timeout => {}
            Err(error) => return Some(Err(error.into())),
        }
        tokio::time::sleep(if waited < FIRST_PERIOD { FIRST_INTERVAL } else { LONG_INTERVAL }).await;
        None
    }
}

/// Returns the error that ends a wait if the project was deleted, because no node will respond.
pub(super) async fn end_if_deleted<T>(
    connection: &mut Connection,
    project: ProjectId,
) -> store::Result<Option<Result<T>>> {
    let owner = connection.project_plan(project).await?;
    Ok(owner.is_none().then_some(Err(DatabaseError::ProjectNotFound)))
}
