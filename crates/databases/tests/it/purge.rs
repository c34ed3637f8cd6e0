//! The background job that deletes old rows.

use databases::{GenerationKind, Phase};
use kernel::Limits;

use crate::kit::{Kit, code, record};

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
