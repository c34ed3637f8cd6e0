//! Locks of another transaction.

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};

use super::App;

/// A transaction on a separate connection. Its locks are held until it is committed or dropped.
pub struct HeldLocks(store::Connection);

impl App {
    /// Begins a transaction with a statement that acquires locks.
    pub async fn hold(&self, statement: &str) -> HeldLocks {
        let mut connection = store::Connection::establish(&self.database.url()).await.unwrap();
        connection.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
        HeldLocks(connection)
    }
}

impl HeldLocks {
    /// Runs further statements, which may be none, and commits the transaction.
    pub async fn commit(mut self, statements: &str) {
        self.0.batch_execute(&format!("{statements}; COMMIT")).await.unwrap();
    }
}
