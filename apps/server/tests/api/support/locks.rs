//! Locks of another transaction.

use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;

use diesel_async::{AsyncConnection as _, SimpleAsyncConnection as _};
use futures_util::future::join_all;

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

/// Counts the changes that wait for a lock. No job locks these rows during the tests.
const WAITING_CHANGES: &str = "SELECT count(*) FROM pg_stat_activity \
     WHERE wait_event_type = 'Lock' AND query LIKE 'SELECT%UPDATE%' AND datname = current_database()";

/// Runs `others` while 32 clients repeat a change that waits for locks, and gets 503. These are more clients than the
/// server has connections. Returns when no client waits.
pub async fn while_changes_wait(change: impl AsyncFn() -> ApiResponse, others: impl Future<Output = ()>) {
    let is_over = Cell::new(false);
    let client = async || loop {
        let response = change().await;
        assert_eq!(response.status, 503, "{response:?}");
        if is_over.get() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let others = async {
        others.await;
        is_over.set(true);
    };
    tokio::join!(join_all((0..32).map(|_| client())), others);
}

impl App {
    /// Sends a request during [`while_changes_wait`], while this number of changes waits for the lock. Asserts that no
    /// more wait, so they cannot exhaust the connections. On a busy machine, the request may wait for a connection for
    /// too long, so it is repeated.
    pub async fn send_during_changes(&self, changes: i64, request: impl AsyncFn() -> ApiResponse) -> ApiResponse {
        let waiting = async || self.database.number(WAITING_CHANGES).await;
        eventually("a response", async || {
            eventually("the changes wait", async || (waiting().await >= changes).then_some(())).await;
            let response = request().await;
            assert!(waiting().await <= changes, "the changes hold too many connections");
            (response.status != 503).then_some(response)
        })
        .await
    }
}

impl HeldLocks {
    /// Runs further statements, which may be none, and commits the transaction.
    pub async fn commit(mut self, statements: &str) {
        self.0.batch_execute(&format!("{statements}; COMMIT")).await.unwrap();
    }
}
