//! Pooled connections and their session settings.

use diesel::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::{RunQueryDsl as _, SimpleAsyncConnection as _};
use kernel::{ApiError as _, Code};
use store::{Connection, Result, Store, Timeouts};

use super::kit::{Kit, pid, rows};

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_pool_returns_unavailable() {
    let kit = Kit::with(1).await;
    let mut connection = kit.store.connection().await.unwrap();
    let first = pid(&mut connection).await;
    let error = kit.store.connection().await.map(drop).unwrap_err();
    assert_eq!(error.code(), &Code::UNAVAILABLE);
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 0));
    drop(connection);
    // This is the same connection again, with its prepared statements.
    assert_eq!(pid(&mut kit.store.connection().await.unwrap()).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiter_gets_the_returned_connection() {
    let kit = Kit::with(1).await;
    let connection = kit.store.connection().await.unwrap();
    let (next, ()) = tokio::join!(kit.store.connection(), async {
        tokio::task::yield_now().await;
        drop(connection);
    });
    assert_eq!((next.is_ok(), kit.store.status().open), (true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_connection_is_replaced() {
    let kit = Kit::with(1).await;
    let closed = pid(&mut kit.store.connection().await.unwrap()).await;
    kit.db_rows(&format!("SELECT pg_terminate_backend({closed})")).await;
    // The client may not have noticed yet that the server closed the connection.
    let replaced = async {
        while rows(&mut kit.store.connection().await.unwrap(), "SELECT 1").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), replaced).await.unwrap();
    assert_ne!(pid(&mut kit.store.connection().await.unwrap()).await, closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_have_timeouts_and_an_application_name() {
    let kit = Kit::with(1).await;
    let mut connection = kit.store.connection().await.unwrap();
    let settings = rows(
        &mut connection,
        "SELECT name, setting FROM pg_settings WHERE name IN \
             ('application_name', 'statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout')",
    );
    let settings = settings.await.unwrap();
    let setting = |name: &str| settings.iter().find(|row| row["name"] == name).unwrap()["setting"].as_str().unwrap();
    let millis = |name| setting(name).parse::<u32>().unwrap();
    assert_eq!(setting("application_name"), "test");
    // No statement takes longer than three seconds, and a lock wait times out before its statement does.
    let (statement, lock) = (millis("statement_timeout"), millis("lock_timeout"));
    assert!(0 < lock && lock < statement && statement <= 3000, "{settings:?}");
    assert!(millis("idle_in_transaction_session_timeout") > 0, "{settings:?}");
}

/// Runs `work` on a new thread with its own runtime and pool, as a server thread does.
pub fn on_server_thread<T: Send + 'static>(store: &Store, work: impl AsyncFnOnce(&Store) -> T + Send + 'static) -> T {
    let store = store.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            store.bind_pool_to_thread();
            work(&store).await
        })
    });
    thread.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn shortest_wait_covers_all_requests_since_the_last_call() {
    let kit = Kit::divided(8, 2).await;
    drop(kit.store.connection().await.unwrap());
    // This thread serves no requests.
    assert_eq!(kit.store.take_shortest_wait(), None);
    on_server_thread(&kit.store, async |store| drop(store.connection().await.unwrap()));
    assert!(kit.store.take_shortest_wait().is_some());
    assert_eq!(kit.store.take_shortest_wait(), None);

    let kit = Kit::with(1).await;
    let held = kit.store.connection().await.unwrap();
    assert!(kit.store.take_shortest_wait().is_some());
    // A wait that times out counts too.
    assert!(kit.store.connection().await.is_err());
    assert!(kit.store.take_shortest_wait().is_some());
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn thread_with_its_own_pool_leaves_the_other_connections_free() {
    let kit = Kit::open(8, 2, Timeouts::default()).await;
    // The shared pool has two connections, and each thread has three, one of them for lookups.
    let opened = on_server_thread(&kit.store, async |store| {
        let mut connections = Vec::new();
        while let Ok(connection) = store.connection().await {
            connections.push(connection);
        }
        connections.len()
    });
    assert_eq!(opened, 2);
    let shared = [kit.store.connection().await, kit.store.connection().await];
    assert!(shared.iter().all(Result::is_ok));
    assert_eq!(kit.store.connection().await.map(drop).unwrap_err().code(), &Code::UNAVAILABLE);
    // A thread that replaces an ended one gets the same pool, and opens connections on its own runtime.
    for _ in 0..3 {
        let answer =
            on_server_thread(&kit.store, async |store| rows(&mut store.connection().await.unwrap(), "SELECT 1").await);
        assert!(answer.is_ok());
    }
}

#[derive(QueryableByName)]
struct PlanLine {
    #[diesel(sql_type = Text, column_name = "QUERY PLAN")]
    text: String,
}

/// Returns the plan to find a row of the table `empty`.
async fn plan(connection: &mut Connection) -> String {
    let explain = diesel::sql_query("EXPLAIN SELECT FROM empty WHERE id = 1");
    let lines: Vec<PlanLine> = explain.load(connection).await.unwrap();
    lines.into_iter().map(|line| line.text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_use_an_index_even_if_the_table_is_empty() {
    let kit = Kit::divided(8, 2).await;
    let mut shared = kit.store.connection().await.unwrap();
    for statement in ["CREATE TABLE empty (id integer PRIMARY KEY)", "VACUUM empty"] {
        shared.batch_execute(statement).await.unwrap();
    }
    assert!(plan(&mut shared).await.contains("Seq Scan"));
    let of_requests = on_server_thread(&kit.store, async |store| plan(&mut store.connection().await.unwrap()).await);
    assert!(of_requests.contains("Index"), "{of_requests}");
}
