//! Leases, and what a connection is set to.

use kernel::{Code, Failure as _};

use crate::kit::{Kit, pid, rows};

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
