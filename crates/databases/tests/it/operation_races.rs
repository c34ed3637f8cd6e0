//! Concurrent operations, aborts and reports.

use databases::{DatabaseError, Phase, Progress};
use futures_util::future::join;
use kernel::AbuseLimits;
use testkit::four_at_a_time;

use crate::kit::{Kit, observation};

#[tokio::test(flavor = "multi_thread")]
async fn one_of_concurrent_operations_starts() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    kit.audited().await;
    let start = async |number: i32| match number % 2 {
        0 => kit.restore(at, &chosen).await,
        _ => kit.delete(at).await,
    };
    let started = four_at_a_time((0..20).map(start)).await;
    let (started, refused): (Vec<_>, Vec<_>) = started.into_iter().partition(Result::is_ok);
    assert_eq!((started.len(), refused.len()), (1, 19));
    assert!(refused.iter().all(|refused| matches!(refused, Err(DatabaseError::OperationInProgress))), "{refused:?}");
    assert_eq!(kit.audited().await.len(), 1);
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.operations").await, 1);
    assert_eq!(kit.placement(at).await, ("draining".to_owned(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn either_abort_or_commit_wins() {
    let mut kit = Kit::start().await;
    let limits = AbuseLimits { database_restores_per_project: 100, ..AbuseLimits::default() };
    kit.databases = kit.databases.with_abuse_limits(limits);
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    for round in 0..16 {
        let operation = kit.restore(at, &chosen).await.unwrap();
        kit.complete(at, operation, Phase::Draining).await;
        let part = kit.part(at).await.unwrap();
        let sealed = Progress::Completed { operation, phase: Phase::Sealing, generation: None };
        let abort = async {
            // With these delays, both orders occur.
            tokio::time::sleep(std::time::Duration::from_micros(300 * (round % 8))).await;
            kit.databases.abort(&kit.actor, at, operation).await
        };
        let (aborted, ()) = join(abort, kit.observe(at, observation(part.id, part.revision), Some(sealed))).await;
        let epoch = kit.placement(at).await.1;
        match aborted {
            Ok(_) => {
                assert_eq!(kit.operation(at, operation).await.terminal_code.as_deref(), Some("aborted"));
                assert_eq!(kit.placement(at).await.0, "active");
            }
            Err(error) => {
                assert!(matches!(error, DatabaseError::NotAbortable), "{error:?}");
                assert_eq!(kit.operation(at, operation).await.phase, Phase::Committing);
                for phase in [Phase::Committing, Phase::Reactivating] {
                    kit.complete(at, operation, phase).await;
                }
                assert_eq!(kit.placement(at).await, ("active".to_owned(), epoch + 1));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_copies_of_a_report_advance_once() {
    let kit = Kit::start().await;
    let (at, id) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    let operation = kit.restore(at, &chosen).await.unwrap();
    for (phase, next) in [
        (Phase::Draining, Phase::Sealing),
        (Phase::Sealing, Phase::Committing),
        (Phase::Committing, Phase::Reactivating),
        (Phase::Reactivating, Phase::Done),
    ] {
        let revision = kit.part(at).await.unwrap().revision;
        let progress = Progress::Completed { operation, phase, generation: None };
        four_at_a_time((0..10).map(|_| kit.observe(at, observation(id, revision), Some(progress.clone())))).await;
        assert_eq!(kit.operation(at, operation).await.phase, next);
    }
    assert_eq!(kit.placement(at).await, ("active".to_owned(), 2));
    assert_eq!(kit.notices.take().len(), 1);
}
