//! Transactions whose future is dropped before they end.

use std::future::Future;

use diesel_async::RunQueryDsl as _;
use store::{Connection, Error, Outcome};
use tokio::sync::oneshot;

use super::kit::{Kit, actor, event, pid, rows, write};

const LOCK: &str = "SELECT id FROM note WHERE id = 0 FOR UPDATE";

/// Polls `work` until `reached` is ready, then drops it.
async fn abandon<T>(work: impl Future, reached: impl Future<Output = T>) -> T {
    tokio::select! {
        _ = work => panic!("the work finished"),
        reached = reached => reached,
    }
}

/// Locks a row, writes another one, and sends the process id of the Postgres backend.
async fn begin(tx: &mut Connection, sender: oneshot::Sender<i64>) -> Result<(), Error> {
    rows(tx, LOCK).await?;
    write(tx, 1).await?;
    let _ = sender.send(pid(tx).await);
    Ok(())
}

/// Receives the process id of a Postgres backend, and waits until the backend is in the state of the condition `how`.
/// Returns the id.
async fn waiting(kit: &Kit, receiver: oneshot::Receiver<i64>, how: &str) -> i64 {
    let pid = receiver.await.unwrap();
    kit.db_until(1, &format!("SELECT pid FROM pg_stat_activity WHERE pid = {pid} AND {how}")).await;
    pid
}

/// Asserts that the abandoned connection is gone, with its locks and its writes.
async fn assert_gone(kit: &Kit, abandoned: i64) {
    // The connection must be closed before the pool is used again, and without the server's timeout for idle
    // transactions. A lock that is still held makes this statement fail with a lock timeout.
    kit.db_execute(LOCK).await;
    kit.db_until(0, &format!("SELECT pid FROM pg_stat_activity WHERE pid = {abandoned}")).await;
    let work = async |tx: &mut Connection| {
        assert_ne!(pid(tx).await, abandoned);
        write(tx, 1).await?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    };
    kit.store.transaction(&actor(), work).await.unwrap();
    assert_eq!((kit.store.status().open, kit.store.status().idle), (1, 1));
    assert_eq!((kit.db_notes().await, kit.db_audits().await), (vec!["zero".to_owned(), "note 1".to_owned()], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_dropped_between_statements_releases_everything() {
    let kit = Kit::start().await;
    let (sender, receiver) = oneshot::channel();
    let actor = actor();
    let work = kit.store.transaction(&actor, async |tx| {
        begin(tx, sender).await?;
        std::future::pending::<Result<Outcome<()>, Error>>().await
    });
    let abandoned = abandon(work, async { receiver.await.unwrap() }).await;
    assert_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_dropped_during_a_statement_releases_everything() {
    let kit = Kit::start().await;
    let (sender, receiver) = oneshot::channel();
    let actor = actor();
    let work = kit.store.transaction(&actor, async |tx| {
        begin(tx, sender).await?;
        diesel::sql_query("SELECT pg_sleep(20)").execute(tx).await.map_err(Error::from)?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    });
    let abandoned = abandon(work, waiting(&kit, receiver, "wait_event = 'PgSleep'")).await;
    assert_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_dropped_during_a_statement_closes_its_connection() {
    let kit = Kit::start().await;
    let (sender, receiver) = oneshot::channel();
    let work = async {
        let mut connection = kit.store.connection().await.unwrap();
        let _ = sender.send(pid(&mut connection).await);
        diesel::sql_query("SELECT pg_sleep(20)").execute(&mut *connection).await
    };
    let abandoned = abandon(work, waiting(&kit, receiver, "wait_event = 'PgSleep'")).await;
    assert_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_dropped_during_a_lock_wait_leaves_the_queue() {
    let kit = Kit::start().await;
    let (sender, receiver) = oneshot::channel();
    let actor = actor();
    let holding = kit.store.transaction(&actor, async |tx| {
        rows(tx, LOCK).await?;
        let queued = kit.store.transaction(&actor, async |tx| {
            let _ = sender.send(pid(tx).await);
            diesel::sql_query(LOCK).execute(tx).await.map_err(Error::from)?;
            Ok::<_, Error>(Outcome::Unchanged(()))
        });
        Ok::<_, Error>(Outcome::Unchanged(abandon(queued, waiting(&kit, receiver, "wait_event_type = 'Lock'")).await))
    });
    let abandoned = holding.await.unwrap();
    assert_gone(&kit, abandoned).await;
}
