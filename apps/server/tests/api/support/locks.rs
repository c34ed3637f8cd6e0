//! Locks of another transaction.

use std::pin::pin;

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};

use super::{ApiResponse, App, eventually};

/// A transaction on a separate connection. Its locks are held until it is committed or dropped.
pub struct HeldLocks(store::Connection);

impl App {
    /// Begins a transaction with a statement that acquires locks.
    pub async fn hold(&self, statement: &str) -> HeldLocks {
        let mut connection = store::Connection::establish(&self.database.url()).await.unwrap();
        connection.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
        HeldLocks(connection)
    }

    /// Waits until a statement that contains `part` waits for a lock.
    pub async fn wait_for_lock(&self, part: &str) {
        self.waiting_transaction_locks_node(part).await;
    }

    /// Waits until a statement that contains `part` waits for a lock. Returns whether its transaction has locked the row
    /// of a node. All projects of a node share the lock of its row.
    pub async fn waiting_transaction_locks_node(&self, part: &str) -> bool {
        let statement = format!(
            "SELECT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid \
             AND l.mode IN ('RowShareLock', 'RowExclusiveLock') \
             AND l.relation = 'convergence.nodes'::regclass) AS locks_node \
             FROM pg_stat_activity a WHERE a.wait_event_type = 'Lock' AND a.datname = current_database() \
             AND position('{part}' IN a.query) > 0"
        );
        let waiting = async || self.db_rows(&statement).await.first().map(|row| row["locks_node"] == true);
        eventually("a transaction waits for a lock", waiting).await
    }
}

/// Sends a request that waits for locks until `others` release them. A request that waits for too long gets 503, so it is
/// repeated. Returns the last response.
pub async fn while_waiting(request: impl AsyncFn() -> ApiResponse, others: impl Future<Output = ()>) -> ApiResponse {
    let mut others = pin!(others);
    loop {
        let mut response = pin!(request());
        tokio::select! {
            () = &mut others => {
                let response = response.await;
                return if response.status == 503 { request().await } else { response };
            }
            response = &mut response => if response.status != 503 {
                others.await;
                return response;
            },
        }
    }
}

impl HeldLocks {
    /// Runs further statements, which may be none, and commits the transaction.
    pub async fn commit(mut self, statements: &str) {
        self.0.batch_execute(&format!("{statements}; COMMIT")).await.unwrap();
    }
}
