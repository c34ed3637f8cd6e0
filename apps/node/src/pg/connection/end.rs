//! The reset of a session after a call, and the end of a session.

use std::time::Duration;

use postgres_protocol::message::frontend;
use tokio::time::timeout;

use super::Connection;
use crate::pg::cancel::cancel;
use crate::pg::error::Failure;

/// The longest time of a reset, which normally takes less than a millisecond.
const RESET_TIMEOUT: Duration = Duration::from_secs(5);
/// How often [`Connection::abort`] tries to cancel the statement, and how long each attempt takes.
const CANCEL_ATTEMPTS: usize = 5;
const CANCEL_INTERVAL: Duration = Duration::from_secs(1);

impl Connection {
    /// Removes everything that a call left in the session. Returns whether another call may use it.
    pub async fn reset(&mut self) -> bool {
        self.has_begun = false;
        self.begins = false;
        self.wire.outgoing.clear();
        let was_in_transaction = self.in_transaction;
        let reset = async {
            // After an error, the server ignores all messages up to this Sync.
            frontend::sync(&mut self.wire.outgoing);
            if was_in_transaction {
                frontend::query("ROLLBACK", &mut self.wire.outgoing)?;
            }
            // `DISCARD ALL` also resets the session authorization, and with it the role that the login acts as. `RESET
            // ROLE` sets that role again.
            frontend::query("DISCARD ALL", &mut self.wire.outgoing)?;
            frontend::query("RESET ROLE", &mut self.wire.outgoing)?;
            self.wire.send().await?;
            match self.read_until_ready().await {
                Ok(()) | Err(Failure::Call(_)) => {}
                Err(failure) => return Err(failure),
            }
            if was_in_transaction {
                self.finish_query("ROLLBACK").await?;
            }
            self.finish_query("DISCARD ALL").await?;
            self.finish_query("RESET").await
        };
        match timeout(RESET_TIMEOUT, reset).await {
            Ok(Ok(())) => {
                self.wire.release();
                !self.in_transaction
            }
            Ok(Err(failure)) => {
                tracing::debug!(error = %failure, "failed to reset a session");
                false
            }
            Err(_) => false,
        }
    }

    /// Cancels the current statement and ends the session. Returns when the session has ended, or after a few attempts;
    /// the server then ends it when it notices that the connection is closed.
    pub async fn abort(mut self) {
        self.wire.outgoing.clear();
        frontend::terminate(&mut self.wire.outgoing);
        // The server reads this message after the statement has ended.
        let terminated = timeout(CANCEL_INTERVAL, self.wire.send()).await;
        if !matches!(terminated, Ok(Ok(()))) {
            tracing::debug!("a session did not accept its end");
        }
        for _ in 0..CANCEL_ATTEMPTS {
            if let Some(key) = self.key {
                cancel(&self.address, key).await;
            }
            if self.wire.wait_until_closed(CANCEL_INTERVAL).await {
                return;
            }
        }
        tracing::warn!("a session did not end after its statement was canceled");
    }
}
