//! Concurrent changes of one row, which commit together.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use diesel_async::SimpleAsyncConnection as _;
use futures_util::future::join_all;
use kernel::{ApiError as _, Code};
use store::{Connection, Error, GroupCommit, Outcome, Result};
use tokio::sync::Notify;

use super::caller_check::start_with_two_sessions;
use super::kit::{Kit, actor, event, rows, write};

const INCREMENT: &str = "UPDATE note SET text = (CASE text WHEN 'zero' THEN '0' ELSE text END::int + 1)::text \
    WHERE id = 0";
const SEEN: &str = "SELECT text, pg_current_xact_id()::text AS transaction FROM note WHERE id = 0";

/// Each change makes the commit take half a second longer.
const SLOW_COMMIT: &str = "\
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'; \
    CREATE CONSTRAINT TRIGGER note_wait AFTER UPDATE ON note DEFERRABLE INITIALLY DEFERRED \
        FOR EACH ROW EXECUTE FUNCTION wait()";
const COMMITTING: &str = "\
    SELECT pid FROM pg_stat_activity WHERE query = 'COMMIT' AND state = 'active' AND datname = current_database()";

/// The end of a change, which has incremented the number in row 0.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Succeed,
    ViolateAConstraint,
    LoseTheConnection,
    /// Its caller gives up.
    Hang,
}

use Then::{Hang, LoseTheConnection, Succeed, ViolateAConstraint};

/// The number that a change wrote, and its transaction.
struct Seen {
    number: String,
    transaction: String,
}

struct Rig {
    kit: Kit,
    changes: Arc<GroupCommit<i32>>,
    /// All changes are in the queue.
    queued: Notify,
    hangs: Notify,
}

impl Rig {
    async fn start() -> Self {
        Self::on(Kit::start().await)
    }

    fn on(kit: Kit) -> Self {
        Self { kit, changes: Arc::default(), queued: Notify::new(), hangs: Notify::new() }
    }

    async fn change(&self, then: Then, is_first: bool) -> Result<Seen> {
        let work = async |tx: &mut Connection| {
            if is_first {
                self.queued.notified().await;
                // A repetition does not wait.
                self.queued.notify_one();
            }
            tx.batch_execute(INCREMENT).await?;
            let row = rows(tx, SEEN).await?.swap_remove(0);
            match then {
                Succeed => {}
                ViolateAConstraint => write(tx, 0).await?,
                LoseTheConnection => drop(rows(tx, "SELECT pg_terminate_backend(pg_backend_pid())").await?),
                Hang => {
                    self.hangs.notify_one();
                    pending().await
                }
            }
            let text = |name: &str| row[name].as_str().unwrap().to_owned();
            Ok::<_, Error>(Outcome::Changed(Seen { number: text("text"), transaction: text("transaction") }, event()))
        };
        self.kit.store.grouped_transaction(&self.changes, 0, &actor(), work).await
    }

    /// Runs changes. The first one continues when all others wait for it. Returns their results; `None` for a change
    /// whose caller gave up.
    async fn run(&self, thens: &[Then]) -> Vec<Option<Result<Seen>>> {
        let changes = thens.iter().enumerate().map(async |(index, then)| {
            tokio::select! {
                result = self.change(*then, index == 0) => Some(result),
                () = self.hangs.notified(), if *then == Hang => None,
            }
        });
        // A change joins the queue when it is polled for the first time.
        let (results, ()) = tokio::join!(join_all(changes), async { self.queued.notify_one() });
        results
    }

    /// Asserts that exactly this many changes are committed, each with its audit row.
    async fn has_committed(&self, changes: usize) {
        let text = if changes == 0 { "zero".to_owned() } else { changes.to_string() };
        assert_eq!((self.kit.db_notes().await, self.kit.db_audits().await), (vec![text], changes));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_changes_commit_together_and_each_has_its_result() {
    let rig = Rig::start().await;
    let results = rig.run(&[Succeed; 40]).await;
    let seen: Vec<Seen> = results.into_iter().map(|result| result.unwrap().unwrap()).collect();
    let numbers: Vec<&str> = seen.iter().map(|seen| seen.number.as_str()).collect();
    assert_eq!(numbers, (1..=40).map(|number| number.to_string()).collect::<Vec<_>>());
    // At most 16 commit together, on one connection.
    let transactions: BTreeSet<&str> = seen.iter().map(|seen| seen.transaction.as_str()).collect();
    assert_eq!((transactions.len(), rig.kit.store.status().open), (3, 1));
    rig.has_committed(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_change_is_undone_alone() {
    for failing in 0..4 {
        let rig = Rig::start().await;
        let mut thens = [Succeed; 4];
        thens[failing] = ViolateAConstraint;
        for (index, result) in rig.run(&thens).await.into_iter().enumerate() {
            let violates = result.unwrap().is_err_and(|error| error.violates("note_pkey"));
            assert_eq!(violates, index == failing, "{failing} {index}");
        }
        rig.has_committed(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_repeated_when_the_caller_of_another_one_gives_up() {
    for hanging in 0..4 {
        let rig = Rig::start().await;
        let mut thens = [Succeed; 4];
        thens[hanging] = Hang;
        for (index, result) in rig.run(&thens).await.into_iter().enumerate() {
            assert_eq!(result.is_none(), index == hanging, "{hanging} {index}");
            assert!(result.is_none_or(|result| result.is_ok()), "{hanging} {index}");
        }
        rig.has_committed(3).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_connection_commits_nothing_that_was_reported_as_failed() {
    for lost in 0..4 {
        let rig = Rig::start().await;
        let mut thens = [Succeed; 4];
        thens[lost] = LoseTheConnection;
        let results = rig.run(&thens).await;
        let succeeded = results.iter().flatten().filter(|result| result.is_ok()).count();
        for error in results.into_iter().flatten().filter_map(Result::err) {
            assert_eq!(error.code(), &Code::UNAVAILABLE, "{error}");
        }
        assert!(succeeded < 4);
        rig.has_committed(succeeded).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_not_repeated_when_the_thread_ends_that_commits_them() {
    let rig = Arc::new(Rig::start().await);
    rig.kit.db_execute(SLOW_COMMIT).await;
    let last = Arc::clone(&rig);
    let last = async {
        let thread = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let committing = async {
                    last.queued.notify_one();
                    last.kit.db_until(1, COMMITTING).await;
                };
                tokio::select! {
                    biased;
                    _ = last.change(Succeed, false) => panic!("the thread did not end during the commit"),
                    () = committing => {}
                }
            });
        };
        tokio::task::spawn_blocking(thread).await.unwrap();
    };
    let (first, ()) = tokio::join!(rig.change(Succeed, true), last);
    assert_eq!(first.err().unwrap().code(), &Code::UNAVAILABLE);
    rig.kit.db_until(0, COMMITTING).await;
    let changes = rig.kit.db_audits().await;
    assert!([0, 2].contains(&changes), "{changes}");
}

/// Changes with two sessions race with a transaction that ends both, in the opposite order.
#[tokio::test(flavor = "multi_thread")]
async fn group_does_not_deadlock_with_a_transaction_that_ends_several_sessions() {
    for is_committed in [false, true] {
        let (kit, store, actors) = start_with_two_sessions().await;
        let changes = Arc::default();
        let (locked, first_is_checked) = (Notify::new(), Notify::new());
        let change = async |number: usize| {
            let work = async |tx: &mut Connection| {
                if number == 0 {
                    locked.notified().await;
                } else {
                    // The check of the first change has locked its session.
                    first_is_checked.notify_one();
                }
                tx.batch_execute(INCREMENT).await?;
                Ok::<_, Error>(Outcome::Changed((), event()))
            };
            store.grouped_transaction(&changes, 0, &actors[number], work).await
        };
        let end_sessions = async {
            kit.store
                .transaction_unaudited(async |tx| {
                    tx.batch_execute("DELETE FROM caller WHERE number = 1").await?;
                    locked.notify_one();
                    first_is_checked.notified().await;
                    tx.batch_execute("DELETE FROM caller WHERE number = 0").await?;
                    if is_committed { Ok(()) } else { Err(Error::inconsistent("roll back")) }
                })
                .await
        };
        let (first, second, ended) = tokio::join!(change(0), change(1), end_sessions);
        first.unwrap();
        if is_committed {
            ended.unwrap();
            assert!(matches!(second.unwrap_err(), Error::Caller(_)));
        } else {
            assert!(matches!(ended.unwrap_err(), Error::Inconsistent(_)));
            second.unwrap();
        }
        assert_eq!(kit.db_audits().await, if is_committed { 1 } else { 2 });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_waits_too_long_is_unavailable() {
    let rig = Rig::on(Kit::with(4).await);
    let waiting = async {
        let error = rig.change(Succeed, false).await.err().unwrap();
        rig.queued.notify_one();
        error
    };
    let (first, error) = tokio::join!(rig.change(Succeed, true), waiting);
    assert_eq!((first.unwrap().number.as_str(), error.code()), ("1", &Code::UNAVAILABLE));
    rig.has_committed(1).await;
    // The row can be changed again.
    assert_eq!(rig.change(Succeed, false).await.unwrap().number, "2");
}
