//! Leases, and what a connection is set to.

use kernel::{Code, Failure as _};
use store::{Result, Store};

use super::kit::{Kit, pid, rows};

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_no_connection_is_told_to_come_back() {
    let kit = Kit::with(1).await;
    let mut lease = kit.store.connection().await.unwrap();
    let first = pid(&mut lease).await;
    let refused = kit.store.connection().await.map(drop).unwrap_err();
    assert_eq!(refused.code(), &Code::UNAVAILABLE);
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 0));
    drop(lease);
    // The same one again: what it has prepared is still there.
    assert_eq!(pid(&mut kit.store.connection().await.unwrap()).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_gets_the_connection_that_comes_back() {
    let kit = Kit::with(1).await;
    let lease = kit.store.connection().await.unwrap();
    let (next, ()) = tokio::join!(kit.store.connection(), async {
        tokio::task::yield_now().await;
        drop(lease);
    });
    assert_eq!((next.is_ok(), kit.store.status().open), (true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_the_server_closed_is_replaced() {
    let kit = Kit::with(1).await;
    let closed = pid(&mut kit.store.connection().await.unwrap()).await;
    kit.db_rows(&format!("SELECT pg_terminate_backend({closed})")).await;
    // The news may still be on its way through the socket.
    let replaced = async {
        while rows(&mut kit.store.connection().await.unwrap(), "SELECT 1").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), replaced).await.unwrap();
    assert_ne!(pid(&mut kit.store.connection().await.unwrap()).await, closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_gives_up_in_time_and_says_whose_it_is() {
    let kit = Kit::start().await;
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
    // Nothing waits longer than three seconds, and who waits for a lock is told so before the statement is given up.
    let (statement, lock) = (millis("statement_timeout"), millis("lock_timeout"));
    assert!(0 < lock && lock < statement && statement <= 3000, "{settings:?}");
    assert!(millis("idle_in_transaction_session_timeout") > 0, "{settings:?}");
}

/// What a thread that serves requests does.
fn settled<T: Send + 'static>(store: &Store, work: impl AsyncFnOnce(&Store) -> T + Send + 'static) -> T {
    let store = store.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            store.settle();
            work(&store).await
        })
    });
    thread.join().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_settled_leaves_the_others_their_connections() {
    let kit = Kit::divided(8, 2).await;
    // Two for what runs beside the requests, three for each of the threads.
    let taken = settled(&kit.store, async |store| {
        let mut leases = Vec::new();
        while let Ok(lease) = store.connection().await {
            leases.push(lease);
        }
        leases.len()
    });
    assert_eq!(taken, 3);
    let beside = [kit.store.connection().await, kit.store.connection().await];
    assert!(beside.iter().all(Result::is_ok));
    assert_eq!(kit.store.connection().await.map(drop).unwrap_err().code(), &Code::UNAVAILABLE);
    // One that takes the place of a thread that ended opens connections of its own runtime.
    for _ in 0..3 {
        let answer = settled(&kit.store, async |store| rows(&mut store.connection().await.unwrap(), "SELECT 1").await);
        assert!(answer.is_ok());
    }
}
