//! Waits for the result of a node. A wait holds no connection, and may be dropped at any time.

use std::time::Duration;

use kernel::ProjectId;
use store::Connection;
use tokio::time::Instant;

use super::{Databases, Result};
use crate::error::DatabaseError;
use crate::repository::ProjectRepository as _;

/// The interval of the first polls.
const FIRST_INTERVAL: Duration = Duration::from_millis(50);

/// The time after which a wait polls only at long intervals, because an export can take minutes.
const FIRST_PERIOD: Duration = Duration::from_secs(10);

const LONG_INTERVAL: Duration = Duration::from_millis(500);

impl Databases {
    /// Polls until `poll` returns a result. Returns `None` at the timeout. Repeats a poll that failed because Postgres
    /// was unavailable.
    ///
    /// # Errors
    /// Returns the error of a poll, or [`DatabaseError::ProjectNotFound`] if the project was deleted, because no node
    /// will respond.
    pub(super) async fn wait<T>(
        &self,
        project: ProjectId,
        timeout: Duration,
        poll: impl AsyncFn(&mut Connection) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let start = Instant::now();
        loop {
            let polled = self.poll_once(project, &poll).await;
            let waited = start.elapsed();
            match polled {
                Ok(None) | Err(DatabaseError::Store(store::Error::Unavailable(_))) if waited < timeout => {}
                ended => return ended,
            }
            tokio::time::sleep(if waited < FIRST_PERIOD { FIRST_INTERVAL } else { LONG_INTERVAL }).await;
        }
    }

    async fn poll_once<T>(
        &self,
        project: ProjectId,
        poll: impl AsyncFn(&mut Connection) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let mut connection = self.store.connection().await?;
        let result = poll(&mut connection).await?;
        if result.is_none() && connection.project_plan(project).await?.is_none() {
            return Err(DatabaseError::ProjectNotFound);
        }
        Ok(result)
    }
}
