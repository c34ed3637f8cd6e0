//! A request that is given up in the middle of a transaction.

use std::future::Future;

use diesel_async::RunQueryDsl as _;
use store::{Connection, Error, Outcome};
use tokio::sync::oneshot;

use super::kit::{Kit, actor, event, pid, rows, write};

const LOCK: &str = "SELECT id FROM note WHERE id = 0 FOR UPDATE";

/// Runs `work` until `reached`, and then drops it where it is.
async fn abandon<T>(work: impl Future, reached: impl Future<Output = T>) -> T {
    tokio::select! {
        _ = work => panic!("it ended"),
        reached = reached => reached,
    }
}

/// Locks and writes, and tells by which connection.
async fn begin(tx: &mut Connection, tell: oneshot::Sender<i64>) -> Result<(), Error> {
    rows(tx, LOCK).await?;
    write(tx, 1).await?;
    let _ = tell.send(pid(tx).await);
    Ok(())
}

/// Waits until the connection that is told waits in this way, and tells which one it is.
async fn waiting(kit: &Kit, told: oneshot::Receiver<i64>, how: &str) -> i64 {
    let pid = told.await.unwrap();
    kit.db_until(1, &format!("SELECT pid FROM pg_stat_activity WHERE pid = {pid} AND {how}")).await;
    pid
}

/// That nothing of the abandoned connection is left: neither its locks nor its writes nor itself.
async fn is_gone(kit: &Kit, abandoned: i64) {
    // Before anybody draws from this pool again, and sooner than the server would lose its patience with the abandoned
    // one: who waits for a lock gives up first, and this fails.
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
async fn between_two_statements_it_holds_nothing_any_more() {
    let kit = Kit::start().await;
    let (tell, told) = oneshot::channel();
    let actor = actor();
    let work = kit.store.transaction(&actor, async |tx| {
        begin(tx, tell).await?;
        std::future::pending::<Result<Outcome<()>, Error>>().await
    });
    let abandoned = abandon(work, async { told.await.unwrap() }).await;
    is_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_middle_of_a_statement_it_holds_nothing_any_more() {
    let kit = Kit::start().await;
    let (tell, told) = oneshot::channel();
    let actor = actor();
    let work = kit.store.transaction(&actor, async |tx| {
        begin(tx, tell).await?;
        diesel::sql_query("SELECT pg_sleep(20)").execute(tx).await.map_err(Error::from)?;
        Ok::<_, Error>(Outcome::Changed((), event()))
    });
    let abandoned = abandon(work, waiting(&kit, told, "wait_event = 'PgSleep'")).await;
    is_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_given_up_in_the_middle_of_a_statement_takes_its_connection_along() {
    let kit = Kit::start().await;
    let (tell, told) = oneshot::channel();
    let work = async {
        let mut connection = kit.store.connection().await.unwrap();
        let _ = tell.send(pid(&mut connection).await);
        diesel::sql_query("SELECT pg_sleep(20)").execute(&mut *connection).await
    };
    let abandoned = abandon(work, waiting(&kit, told, "wait_event = 'PgSleep'")).await;
    is_gone(&kit, abandoned).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_waits_for_a_lock_it_leaves_the_queue() {
    let kit = Kit::start().await;
    let (tell, told) = oneshot::channel();
    let actor = actor();
    let holding = kit.store.transaction(&actor, async |tx| {
        rows(tx, LOCK).await?;
        let queued = kit.store.transaction(&actor, async |tx| {
            let _ = tell.send(pid(tx).await);
            diesel::sql_query(LOCK).execute(tx).await.map_err(Error::from)?;
            Ok::<_, Error>(Outcome::Unchanged(()))
        });
        Ok::<_, Error>(Outcome::Unchanged(abandon(queued, waiting(&kit, told, "wait_event_type = 'Lock'")).await))
    });
    let abandoned = holding.await.unwrap();
    is_gone(&kit, abandoned).await;
}
