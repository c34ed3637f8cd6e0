//! Reports of the home node.

use databases::{GenerationKind, Notice, Observation};
use futures_util::future::join_all;

use crate::kit::{Kit, observation, record, shop};

const HOUR: i64 = 3600;

#[tokio::test(flavor = "multi_thread")]
async fn each_crossing_of_the_size_limit_is_notified_once() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let limit_bytes = kernel::Limits::default().free.database_bytes;
    for (read_only, raised) in [(false, 0), (true, 1), (true, 0), (false, 0), (true, 1), (true, 0)] {
        kit.observe(at, Observation { read_only, ..observation(id, 1) }, None).await;
        let expected = vec![Notice::DatabaseLimit { project: shop(at), limit_bytes }; raised];
        assert_eq!(kit.notices.take(), expected);
    }
    // After a fast growth or a lower limit, the node can refuse logins without a report of a read-only database before.
    kit.observe(at, observation(id, 1), None).await;
    kit.observe(at, Observation { ready: false, read_only: true, ..observation(id, 1) }, None).await;
    assert_eq!(kit.notices.take(), [Notice::DatabaseLimit { project: shop(at), limit_bytes }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_backups_are_notified_once_until_the_next_success() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let (unknown, known) = (None, Some(kit.now()));
    for (error, fresh_at, raised) in [
        (None, unknown, 0),
        (Some("a"), unknown, 1),
        (Some("a"), unknown, 0),
        (Some("b"), known, 0),
        // The node restarted, and has not read the state of backups yet.
        (None, unknown, 0),
        (Some("b"), known, 0),
        (None, known, 0),
        (Some("b"), known, 1),
    ] {
        let backup_error = error.map(str::to_owned);
        kit.observe(at, Observation { backup_error, fresh_at, ..observation(id, 1) }, None).await;
        let notices = kit.notices.take();
        assert_eq!(notices.len(), raised);
        for notice in notices {
            let reason = error.unwrap().to_owned();
            assert_eq!(notice, Notice::BackupFailed { project: shop(at), reason });
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recovery_from_a_generation_is_notified_once() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    kit.receive_generation(at, record(id, "a", 1, GenerationKind::Scheduled, kit.now())).await;
    for (key, raised) in [(None, 0), (Some("a"), 1), (Some("a"), 0), (None, 0), (Some("a"), 0), (Some("unknown"), 0)] {
        let recovered_from = key.map(str::to_owned);
        kit.observe(at, Observation { recovered_from, ..observation(id, 1) }, None).await;
        let expected = vec![Notice::RestoreCompleted { project: shop(at), epoch: 1, seq: 1 }; raised];
        assert_eq!(kit.notices.take(), expected, "{key:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_of_another_revision_or_database_changes_nothing() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let stored = async || {
        kit.db_rows("SELECT applied_revision, size_bytes, read_only, ready, fresh_at FROM databases.databases").await
    };
    for _ in 1..6 {
        kit.token(at, None).await.unwrap();
    }
    kit.observe(at, Observation { fresh_at: Some(kit.now()), ..observation(id, 5) }, None).await;
    let before = stored().await;
    // A report with a revision that does not exist yet refers to a state from before a restore of the control plane. It
    // is ignored.
    kit.observe(at, Observation { size_bytes: 1, read_only: true, ..observation(id, 7) }, None).await;
    kit.observe(at, Observation { size_bytes: 1, read_only: true, ..observation(id, 4) }, None).await;
    let other = kit.store.clock_rng().id();
    kit.observe(at, Observation { size_bytes: 1, read_only: true, ..observation(other, 6) }, None).await;
    assert_eq!(stored().await, before);
    assert!(kit.notices.take().is_empty());
    let checked_at = Some(kit.now());
    kit.observe(at, Observation { checked_at, ..observation(id, 5) }, None).await;
    assert_eq!(kit.databases.generations(at.project).await.unwrap().last_checked_at, checked_at);
    // A later report without a check, or with an older check, does not change the stored time.
    let older = Some(kit.now().plus_seconds(-60));
    kit.observe(at, Observation { checked_at: older, ..observation(id, 5) }, None).await;
    assert_eq!(kit.databases.generations(at.project).await.unwrap().last_checked_at, checked_at);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_backups_are_notified_once() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let (suspended, _) = kit.database("quiet").await;
    kit.db_place(suspended, "state = 'suspended'").await;
    // Several servers run the job at the same time.
    let notify = async || {
        let jobs = join_all((0..8).map(|_| kit.databases.notify_stale())).await;
        let (counted, notices) = (jobs.into_iter().map(Result::unwrap).sum::<usize>(), kit.notices.take());
        assert_eq!(counted, notices.len());
        notices
    };
    let stale = |since| vec![Notice::BackupStale { project: shop(at), since }];
    assert_eq!(notify().await, []);
    // The fixture advanced the clock by a second for each database.
    kit.advance(3 * HOUR - 2);
    assert_eq!(notify().await, []);
    kit.advance(1);
    // No backup exists.
    assert_eq!(notify().await, stale(None));
    assert_eq!(notify().await, []);
    let fresh = kit.now();
    kit.observe(at, Observation { fresh_at: Some(fresh), ..observation(id, 1) }, None).await;
    assert_eq!(notify().await, []);
    kit.advance(3 * HOUR + 1);
    assert_eq!(notify().await, stale(Some(fresh)));
    assert_eq!(notify().await, []);
    // The allowed age depends on the backup interval of the node.
    kit.db_execute("UPDATE convergence.nodes SET backup_interval_seconds = 7200").await;
    assert_eq!(notify().await, []);
    kit.advance(3 * HOUR);
    assert_eq!(notify().await, stale(Some(fresh)));
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_database_keeps_the_age_of_its_backups() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let fresh = kit.now();
    kit.observe(at, Observation { fresh_at: Some(fresh), ..observation(id, 1) }, None).await;
    kit.advance(3 * HOUR);
    // The new node has not made a backup yet.
    kit.observe(at, observation(id, 1), None).await;
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 0);
    kit.advance(1);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 1);
    assert_eq!(kit.notices.take(), [Notice::BackupStale { project: shop(at), since: Some(fresh) }]);
    let newer = kit.now();
    kit.observe(at, Observation { fresh_at: Some(newer), ..observation(id, 1) }, None).await;
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 0);
    kit.advance(3 * HOUR + 1);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 1);
    assert_eq!(kit.notices.take(), [Notice::BackupStale { project: shop(at), since: Some(newer) }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_backups_of_many_databases_are_notified() {
    let kit = Kit::start().await;
    kit.db_insert_databases(2500).await;
    kit.advance(3 * HOUR + 1);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 2500);
    assert_eq!(kit.notices.take().len(), 2500);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 0);
    // The marks are removed in all batches, too, so that all databases become stale again.
    kit.db_execute("UPDATE convergence.nodes SET backup_interval_seconds = 7200").await;
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.databases WHERE backup_stale").await, 0);
    kit.advance(3 * HOUR);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 2500);
}

#[tokio::test(flavor = "multi_thread")]
async fn shorter_interval_of_another_node_does_not_change_which_backups_are_stale() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let other: kernel::NodeId = kit.store.clock_rng().id();
    let insert = format!(
        "INSERT INTO convergence.nodes (id, name, token_hash, created_at, database_host, database_port, \
             database_sslmode, backup_interval_seconds) \
         VALUES ('{}', 'n2', 'y', now(), 'db2.example', 5432, 'require', 60)",
        other.as_uuid()
    );
    kit.db_execute(&insert).await;
    kit.advance(3 * HOUR - 1);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 0);
    kit.advance(1);
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 1);
    assert_eq!(kit.notices.take(), [Notice::BackupStale { project: shop(at), since: None }]);
    // A project without a node has the default interval, although the intervals of all nodes are longer.
    kit.db_execute("UPDATE databases.databases SET backup_stale = false").await;
    kit.db_execute("UPDATE convergence.nodes SET backup_interval_seconds = 7200").await;
    kit.db_place(at, "node_id = NULL, state = 'pending'").await;
    assert_eq!(kit.databases.notify_stale().await.unwrap(), 1);
}
