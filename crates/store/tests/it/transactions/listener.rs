//! The wake-up: with the commit, and again after its connection was lost.

use std::time::Duration;

use store::{Connection, Error, Outcome, notify};
use tokio::sync::broadcast::Receiver;

use super::kit::{Kit, actor, event};

const LISTENING: &str = "SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN wakeups' \
     AND datname = current_database()";

async fn announce(kit: &Kit, payload: &str) {
    let work = async |tx: &mut Connection| {
        notify(tx, "wakeups", payload).await?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
}

/// The next signal; a long time later than it should come there is none.
async fn next(signals: &mut Receiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(20), signals.recv()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_woken_by_what_was_committed() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    let (mut one, mut other) = (listener.subscribe(), listener.subscribe());
    // Listening has begun: anything may have happened before.
    assert_eq!(next(&mut one).await, "");
    let work = async |tx: &mut Connection| -> Result<Outcome<()>, Error> {
        notify(tx, "wakeups", "rolled back").await?;
        Err(Error::inconsistent("no"))
    };
    kit.store.transaction(&actor(), work).await.unwrap_err();
    notify(&mut kit.store.connection().await.unwrap(), "elsewhere", "not ours").await.unwrap();
    announce(&kit, "one").await;
    announce(&kit, "two").await;
    for expected in ["one", "two"] {
        assert_eq!(next(&mut one).await, expected);
    }
    for expected in ["", "one", "two"] {
        assert_eq!(next(&mut other).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_is_replaced_and_wakes_everybody() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    let mut signals = listener.subscribe();
    assert_eq!(next(&mut signals).await, "");
    for round in ["first", "second", "third"] {
        let ended = kit.db_rows(&LISTENING.replace("pid FROM", "pg_terminate_backend(pid) FROM")).await;
        assert_eq!(ended.len(), 1, "{round}");
        // Whatever was announced meanwhile is lost, and this says so.
        assert_eq!(next(&mut signals).await, "");
        announce(&kit, round).await;
        assert_eq!(next(&mut signals).await, round);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_is_dropped_hangs_up() {
    let kit = Kit::start().await;
    let listener = kit.store.listen("wakeups");
    kit.db_until(1, LISTENING).await;
    drop(listener);
    kit.db_until(0, LISTENING).await;
}
