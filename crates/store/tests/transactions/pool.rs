//! Leases, and what a connection is set to.

use kernel::{Code, Failure as _};
use serde_json::json;

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
async fn a_connection_that_the_server_closed_is_not_lent_out_again() {
    let kit = Kit::with(1).await;
    let closed = pid(&mut kit.store.connection().await.unwrap()).await;
    kit.db_rows(&format!("SELECT pg_terminate_backend({closed})")).await;
    kit.db_until(0, &format!("SELECT pid FROM pg_stat_activity WHERE pid = {closed}")).await;
    // The news is on its way through the socket.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_ne!(pid(&mut kit.store.connection().await.unwrap()).await, closed);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_gives_up_in_time_and_says_whose_it_is() {
    let kit = Kit::start().await;
    let mut connection = kit.store.connection().await.unwrap();
    let settings = "SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock, \
         current_setting('idle_in_transaction_session_timeout') AS idle, current_setting('application_name') AS name";
    let expected = json!({ "statement": "3s", "lock": "2s", "idle": "10s", "name": "test" });
    assert_eq!(rows(&mut connection, settings).await.unwrap(), [expected]);
}
