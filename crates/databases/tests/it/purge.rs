//! The background job that deletes old rows.

use databases::{DatabaseError, GenerationKind, Phase};
use kernel::Limits;
use store::Connection;

use crate::kit::{Kit, code, record};
use crate::ports::Update;

const DAY: i64 = 24 * 3600;

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_deleted_when_they_are_kept_no_longer() {
    let mut limits = Limits::default();
    limits.free.backup_days = 2;
    let kit = Kit::with(limits).await;
    let (at, id) = kit.database("shop").await;
    kit.token(at, Some(60)).await.unwrap();
    kit.token(at, None).await.unwrap();
    kit.receive_generation(at, record(id, "a", 1, GenerationKind::Scheduled, kit.now())).await;
    let chosen = kit.generations(at).await.remove(0);
    let operation = kit.restore(at, &chosen).await.unwrap();
    kit.complete(at, operation, Phase::Draining).await;
    // The generation that a running operation restores is kept.
    kit.advance(3 * DAY);
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    assert_eq!(kit.generations(at).await.len(), 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.tokens").await, 1);
    kit.databases.abort(&kit.actor, at, operation).await.unwrap();
    kit.scheduled(at).await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    assert_eq!(kit.generations(at).await.iter().map(|generation| generation.seq).collect::<Vec<_>>(), [2]);
    // The ended operation is kept, but its generation is not.
    assert_eq!(kit.operation(at, operation).await.terminal_code.as_deref(), Some("aborted"));
    kit.advance(30 * DAY + 1);
    kit.audited().await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    assert_eq!(code(kit.databases.operation(at.project, operation).await), "not_found");
    let audited = kit.audited().await;
    assert_eq!(audited.iter().map(|audit| audit.event.as_str()).collect::<Vec<_>>(), ["database.purge"]);
    // A run without old rows writes no audit row.
    assert_eq!(kit.databases.purge().await.unwrap(), 0);
    assert!(kit.audited().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_of_a_deleted_project_stay_30_days() {
    let mut limits = Limits::default();
    limits.free.backup_days = 2;
    let kit = Kit::with(limits).await;
    let (at, _) = kit.database("shop").await;
    kit.scheduled(at).await;
    kit.scheduled(at).await;
    kit.db_delete(at).await;
    kit.advance(29 * DAY);
    assert_eq!(kit.databases.purge().await.unwrap(), 0);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.generations").await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_a_project_deletes_its_backups_if_it_ever_had_a_generation() {
    let kit = Kit::start().await;
    let (without, _) = kit.database("blog").await;
    let (at, _) = kit.database("shop").await;
    kit.scheduled(at).await;
    kit.db_execute("DELETE FROM databases.generations").await;
    kit.node.take_updates();
    for project in [at.project, without.project] {
        let purge = async |tx: &mut Connection| kit.databases.backups_purge(tx, project).await;
        kit.store.transaction_unaudited(purge).await.unwrap();
    }
    let report = async |tx: &mut Connection| kit.databases.backups_deleted(tx, at.project).await;
    kit.store.transaction_unaudited(report).await.unwrap();
    let expected = [Update::DeletionPublished(at.project), Update::DeletionEnded(at.project)];
    assert_eq!(kit.node.take_updates(), expected);
}

/// Inserts 2500 final generations of an earlier database, one per second from the current time on.
async fn insert_old_generations(kit: &Kit) {
    kit.db_execute(&format!(
        "INSERT INTO databases.generations (project_id, seq, database_id, epoch, kind, size_bytes, sha256, key, \
             created_at) \
         SELECT d.project_id, 10000 + n, gen_random_uuid(), 1, 'final', 1, 'x', 'old/' || n, \
             '{}'::timestamptz + n * interval '1 second' \
         FROM databases.databases d, generate_series(1, 2500) n",
        kit.now()
    ))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_continues_after_a_batch_of_kept_generations() {
    let mut limits = Limits::default();
    limits.free.backup_days = 2;
    let kit = Kit::with(limits).await;
    let (at, id) = kit.database("shop").await;
    insert_old_generations(&kit).await;
    kit.advance(3600);
    // The scheduled generations are newer than the final ones, which are kept for longer.
    kit.receive_generation(at, record(id, "a", 1, GenerationKind::Scheduled, kit.now())).await;
    kit.scheduled(at).await;
    kit.advance(3 * DAY);
    kit.audited().await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.generations").await, 2501);
    assert_eq!(kit.audited().await.len(), 1);
    // The purge deletes all final generations in several batches, each with an audit row.
    kit.advance(30 * DAY);
    kit.audited().await;
    assert_eq!(kit.databases.purge().await.unwrap(), 2500);
    let deleted: Vec<i64> =
        kit.audited().await.iter().map(|audit| audit.data["generations"].as_i64().unwrap()).collect();
    assert_eq!((deleted.len(), deleted.iter().sum::<i64>()), (3, 2500), "{deleted:?}");
    assert_eq!(kit.databases.purge().await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_generations_that_fails_keeps_the_other_purges() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    kit.token(at, Some(60)).await.unwrap();
    for key in ["a", "b"] {
        kit.advance(1);
        kit.receive_generation(at, record(id, key, 1, GenerationKind::Scheduled, kit.now())).await;
    }
    kit.advance(40 * DAY);
    kit.db_execute(
        "CREATE TRIGGER refuse BEFORE DELETE ON databases.generations FOR EACH ROW \
         EXECUTE FUNCTION store.reject_change()",
    )
    .await;
    let purged = kit.databases.purge().await;
    assert!(matches!(purged, Err(DatabaseError::Store(_))), "{purged:?}");
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.tokens").await, 0);
    kit.db_execute("DROP TRIGGER refuse ON databases.generations").await;
    assert_eq!(kit.databases.purge().await.unwrap(), 1);
}
