//! Wake-ups: on commit, and after a lost connection.

use std::time::Duration;

use store::{Connection, Error, Outcome, notify};
use tokio::sync::broadcast::Receiver;

use super::kit::{Kit, actor, event};

const LISTENING: &str = "SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN wakeups' \
     AND datname = current_database()";

async fn notify_in_transaction(kit: &Kit, payload: &str) {
    let work = async |tx: &mut Connection| {
        notify(tx, "wakeups", payload).await?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
}

/// Waits for the next wake-up.
async fn next(wakeups: &mut Receiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(20), wakeups.recv()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_wakes_all_subscribers() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    let (mut one, mut other) = (listener.subscribe(), listener.subscribe());
    // LISTEN has started: anything may have changed before.
    assert_eq!(next(&mut one).await, "");
    let work = async |tx: &mut Connection| -> Result<Outcome<()>, Error> {
        notify(tx, "wakeups", "rolled back").await?;
        Err(Error::inconsistent("no"))
    };
    kit.store.transaction(&actor(), work).await.unwrap_err();
    notify(&mut kit.store.connection().await.unwrap(), "elsewhere", "not ours").await.unwrap();
    notify_in_transaction(&kit, "one").await;
    notify_in_transaction(&kit, "two").await;
    for expected in ["one", "two"] {
        assert_eq!(next(&mut one).await, expected);
    }
    for expected in ["", "one", "two"] {
        assert_eq!(next(&mut other).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnect_wakes_all_subscribers() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    let mut wakeups = listener.subscribe();
    assert_eq!(next(&mut wakeups).await, "");
    for round in ["first", "second", "third"] {
        let ended = kit.db_rows(&LISTENING.replace("pid FROM", "pg_terminate_backend(pid) FROM")).await;
        assert_eq!(ended.len(), 1, "{round}");
        // The empty payload reports that notifications may have been lost.
        assert_eq!(next(&mut wakeups).await, "");
        notify_in_transaction(&kit, round).await;
        assert_eq!(next(&mut wakeups).await, round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_listener_closes_its_connection() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    kit.db_until(1, LISTENING).await;
    drop(listener);
    kit.db_until(0, LISTENING).await;
}
