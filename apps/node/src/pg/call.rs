//! A call of worker code: one statement, or a batch in one transaction.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::connection::Connection;
use super::error::{DatabaseError, Failure, Result};
use super::limits::Limits;
use super::output::Output;
use super::statement::Statement;
use crate::memory::Reservation;

/// How the statements of a call are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A single statement in its own transaction.
    Query,
    /// All statements in one transaction: either all are committed or none.
    Batch,
}

/// A call of worker code.
pub struct Call {
    /// The owner of the project, whose memory the call uses.
    pub owner: String,
    pub mode: Mode,
    /// The statements: a JSON array of `{ text, params }`, see the module `parameter`.
    pub body: Bytes,
    /// The reservation of the memory for a large body.
    pub memory: Option<Reservation>,
}

impl Call {
    /// Reads and checks the statements.
    ///
    /// # Errors
    /// Returns an error if the call can never work.
    pub fn statements(&self) -> Result<Vec<Statement<'_>>> {
        let statements = Statement::read_all(&self.body)?;
        if self.mode == Mode::Query && statements.len() != 1 {
            return Err(DatabaseError::InvalidArgument("A query is one statement.".to_owned()));
        }
        Ok(statements)
    }
}

/// Executes a call, and commits it after the last result was written.
pub async fn execute(
    connection: &mut Connection,
    mode: Mode,
    statements: &[Statement<'_>],
    output: &mut Output,
    limits: Limits,
) -> std::result::Result<(), Failure> {
    let deadline = (mode == Mode::Batch).then(|| (Instant::now() + limits.batch, limits.batch.as_secs()));
    let limit = (limits.statement, deadline);
    if mode == Mode::Batch && !statements.is_empty() {
        connection.begin()?;
    }
    for statement in statements {
        limited(limit, async {
            connection.execute(statement, output).await?;
            if mode == Mode::Query { connection.sync().await } else { Ok(()) }
        })
        .await?;
    }
    match mode {
        Mode::Batch if !statements.is_empty() => limited(limit, connection.commit()).await,
        Mode::Batch => Ok(()),
        Mode::Query if connection.is_in_transaction() => {
            Err(DatabaseError::NotSupported("The statement left a transaction open, which was rolled back.").into())
        }
        Mode::Query => Ok(()),
    }
}

/// Executes a statement with a time limit. The limit includes the time in which the worker reads the result. A batch
/// also has a deadline.
async fn limited(
    (limit, deadline): (Duration, Option<(Instant, u64)>),
    statement: impl Future<Output = std::result::Result<(), Failure>>,
) -> std::result::Result<(), Failure> {
    let left = deadline.map(|(at, seconds)| (at.saturating_duration_since(Instant::now()), seconds));
    let (limit, error) = match left.filter(|(left, _)| *left < limit) {
        Some((left, seconds)) => (left, DatabaseError::BatchTimedOut(seconds)),
        None => (limit, DatabaseError::TimedOut(limit.as_secs())),
    };
    timeout(limit, statement).await.unwrap_or(Err(Failure::Fatal(error)))
}
