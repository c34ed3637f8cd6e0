//! The limits of operations in 24 hours.

use databases::{DatabaseError, DatabaseExport, Phase, Target};
use futures_util::future::{join, join_all};
use kernel::{AbuseLimits, ApiError as _, Limits};
use serde_json::json;

use crate::kit::Kit;

const DAY: i64 = 24 * 3600;

impl Kit {
    async fn limited(restores: u32, exports: u32, changes: u32) -> Self {
        let mut kit = Self::with(Limits::default()).await;
        kit.databases = kit.databases.with_abuse_limits(AbuseLimits {
            database_restores_per_project: restores,
            database_exports_per_project: exports,
            database_changes_per_project: changes,
            ..AbuseLimits::default()
        });
        kit
    }

    async fn restore_and_abort(&self, at: Target) -> Result<(), DatabaseError> {
        let newest = self.generations(at).await.remove(0);
        let operation = self.restore(at, &newest).await?;
        self.databases.abort(&self.actor, at, operation).await.unwrap();
        Ok(())
    }

    async fn export(&self, at: Target) -> Result<DatabaseExport, DatabaseError> {
        let node = async {
            for _ in 0..100 {
                if let Some(export) = self.part(at).await.unwrap().exports.pop() {
                    let stored = DatabaseExport { key: "a".to_owned(), size_bytes: 1, created_at: self.now() };
                    self.receive(at, async |tx| self.databases.export_report(tx, at.project, export, Ok(stored)).await)
                        .await;
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        join(self.databases.export(&self.actor, at), node).await.0
    }

    async fn delete_completely(&self, at: Target) {
        let operation = self.delete(at).await.unwrap();
        for phase in [Phase::Draining, Phase::Sealing, Phase::Committing] {
            self.complete(at, operation, phase).await;
        }
    }
}

/// Checks that an operation is rejected, and that it is allowed after `retry_after` seconds.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, DatabaseError>, limit: u32, retry_after: i64) {
    let error = result.unwrap_err();
    assert_eq!((error.code(), error.details()), (&kernel::Code::RATE_LIMITED, Some(json!({ "limit": limit }))));
    assert_eq!(error.retry_after(), Some(retry_after), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_of_a_project_are_limited() {
    let kit = Kit::limited(2, 0, 9).await;
    let (at, _) = kit.database("shop").await;
    let (other, _) = kit.database("other").await;
    kit.scheduled(other).await;
    kit.scheduled(at).await;
    for _ in 0..2 {
        kit.restore_and_abort(at).await.unwrap();
        kit.advance(60);
    }
    refused(kit.restore_and_abort(at).await, 2, DAY - 120);
    assert_eq!(kit.placement(at).await, ("active".to_owned(), 1));
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.operations").await, 2);
    // Another project and another kind of operation have their own limits.
    kit.restore_and_abort(other).await.unwrap();
    kit.delete_completely(other).await;
    // The purge of ended operations does not lift the limit.
    kit.advance(DAY - 121);
    kit.databases.purge().await.unwrap();
    refused(kit.restore_and_abort(at).await, 2, 1);
    kit.advance(1);
    kit.restore_and_abort(at).await.unwrap();
    refused(kit.restore_and_abort(at).await, 2, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_of_a_project_are_limited() {
    let kit = Kit::limited(0, 3, 9).await;
    let (at, _) = kit.database("shop").await;
    for _ in 0..3 {
        kit.export(at).await.unwrap();
    }
    refused(kit.export(at).await, 3, DAY);
    kit.databases.purge().await.unwrap();
    kit.advance(DAY - 1);
    refused(kit.export(at).await, 3, 1);
    kit.advance(1);
    kit.export(at).await.unwrap();
    kit.scheduled(at).await;
    // With a limit of 0, all operations are rejected.
    refused(kit.restore_and_abort(at).await, 0, DAY);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletions_and_enablings_of_a_project_are_limited_together() {
    let kit = Kit::limited(9, 9, 4).await;
    // The fixture advances the clock by a second after it has enabled the database.
    let (at, _) = kit.database("shop").await;
    kit.delete_completely(at).await;
    kit.advance(60);
    kit.enable(at).await;
    // A deleted database counts only once.
    kit.enable(at).await;
    kit.delete_completely(at).await;
    refused(kit.databases.enable(&kit.actor, at).await, 4, DAY - 61);
    assert!(!kit.databases.exists(at.project).await.unwrap());
    kit.advance(DAY - 61);
    kit.enable(at).await;
    refused(kit.delete(at).await, 4, 1);
    kit.advance(1);
    kit.delete_completely(at).await;
    refused(kit.databases.enable(&kit.actor, at).await, 4, 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_do_not_exceed_a_limit_together() {
    let kit = Kit::limited(9, 9, 6).await;
    let (at, _) = kit.database("shop").await;
    let delete_until_limited = async || {
        loop {
            match kit.delete(at).await {
                Ok(operation) => drop(kit.databases.abort(&kit.actor, at, operation).await.unwrap()),
                Err(DatabaseError::OperationInProgress) => tokio::task::yield_now().await,
                Err(error) => return error,
            }
        }
    };
    for error in join_all((0..8).map(|_| delete_until_limited())).await {
        refused::<()>(Err(error), 6, DAY - 1);
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.operations").await, 5);
}
