//! Clients that insert rows, and the journal of these rows.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use crate::bench::databases::Database;

/// Creates the table of the writers.
pub const CREATE: &str = "CREATE TABLE journal (writer int, number int, PRIMARY KEY (writer, number))";

/// The delay before a failed client connects again.
const RETRY_DELAY: Duration = Duration::from_millis(20);
/// The longest wait for a statement. After this time, its outcome is unknown.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A writer, and the number of its row.
pub type Row = (i32, i32);

/// A row that a client sent.
pub struct Write {
    pub row: Row,
    /// The time at which Postgres acknowledged the row; `None` if the outcome is unknown.
    pub acknowledged: Option<Instant>,
}

/// The rows of all writers.
#[derive(Default)]
pub struct Journal(Mutex<Vec<Write>>);

impl Journal {
    /// Returns the number of acknowledged rows.
    pub fn acknowledged(&self) -> usize {
        let writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        writes.iter().filter(|write| write.acknowledged.is_some()).count()
    }

    pub fn into_writes(self) -> Vec<Write> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, write: Write) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(write);
    }
}

/// Inserts rows until stopped, with a pause after each. A row is sent only once, because after an error its outcome is
/// unknown.
pub async fn write(database: &Database, writer: i32, pause: Duration, journal: &Journal, stopped: &AtomicBool) {
    let mut client: Option<Client> = None;
    for number in 0.. {
        let connected = loop {
            if stopped.load(Ordering::SeqCst) {
                return;
            }
            match client.take() {
                Some(connected) => break connected,
                None => match database.connect().await {
                    Ok(connected) => break connected,
                    Err(_) => sleep(RETRY_DELAY).await,
                },
            }
        };
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&writer, &number];
        let insert = connected.execute("INSERT INTO journal VALUES ($1, $2)", &values);
        let acknowledged = matches!(timeout(TIMEOUT, insert).await, Ok(Ok(1)));
        journal.push(Write { row: (writer, number), acknowledged: acknowledged.then(Instant::now) });
        client = acknowledged.then_some(connected);
        sleep(pause).await;
    }
}

/// Returns all rows of the database.
pub async fn rows(client: &Client) -> Result<BTreeSet<Row>> {
    let rows = client.query("SELECT writer, number FROM journal", &[]).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
