//! The sessions of a test in its database.
//!
//! Most tests run many statements, and a poll repeats one. A new session costs many times as much as such a statement,
//! because Postgres starts a process and reads the catalogs. So the next statement continues an earlier session, which
//! was reset.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use diesel::ConnectionResult;
use diesel_async::pooled_connection::PoolableConnection as _;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, SimpleAsyncConnection as _};
use tokio::runtime::{Handle, Id};

/// The largest number of idle sessions. A test rarely runs more statements at the same time.
const MAX_IDLE: usize = 2;

/// The settings of a new session, as diesel sets them. A reset removes them.
const SETTINGS: &str = "SET TIME ZONE 'UTC'; SET CLIENT_ENCODING TO 'UTF8'";

/// The idle sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    /// Each with the runtime that reads and writes its messages.
    idle: Mutex<Vec<(Id, AsyncPgConnection)>>,
}

impl Sessions {
    /// Returns a session without state of earlier statements.
    pub(crate) async fn open(&self, url: &str) -> ConnectionResult<AsyncPgConnection> {
        while let Some(mut session) = self.take() {
            // A test may have ended the session, or its Postgres.
            if !session.is_broken() && session.batch_execute(SETTINGS).await.is_ok() {
                return Ok(session);
            }
        }
        AsyncPgConnection::establish(url).await
    }

    /// Keeps a session for later statements. Its locks, settings and temporary objects end here, as they would with the
    /// session.
    pub(crate) async fn keep(&self, mut session: AsyncPgConnection) {
        // This fails in an open transaction. Then the session ends.
        if session.batch_execute("DISCARD ALL").await.is_err() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push((Handle::current().id(), session));
        }
    }

    pub(crate) fn close(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Removes a session of the current runtime. A session of another one may not respond.
    fn take(&self) -> Option<AsyncPgConnection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let at = idle.iter().position(|(runtime, _)| *runtime == Handle::current().id())?;
        Some(idle.swap_remove(at).1)
    }
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}
