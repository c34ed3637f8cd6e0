//! Exports.

use std::time::Duration;

use databases::{DatabaseError, DatabaseExport, Target};
use futures_util::future::{join, join_all};
use kernel::ExportId;
use kernel::audit::Event;
use serde_json::json;
use testkit::Audit;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::kit::{Kit, code};

const TIMEOUT: Duration = Duration::from_secs(60);

impl Kit {
    /// Waits until the node receives a request for an export.
    async fn pending(&self, at: Target) -> ExportId {
        let receive = async {
            loop {
                if let Some(export) = self.part(at).await.unwrap().exports.pop() {
                    break export;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TIMEOUT, receive).await.unwrap()
    }

    async fn report_export(&self, at: Target, export: ExportId, result: Result<DatabaseExport, &str>) {
        let result = result.map_err(str::to_owned);
        self.receive(at, async |tx| self.databases.export_report(tx, at.project, export, result).await).await;
    }

    fn stored(&self, key: &str) -> DatabaseExport {
        DatabaseExport { key: key.to_owned(), size_bytes: 10, created_at: self.now() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn export_ends_with_the_report_of_the_node() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let node = async {
        let export = kit.pending(at).await;
        kit.report_export(at, export, Ok(kit.stored("a"))).await;
        export
    };
    let (exported, export) = join(kit.databases.export(&kit.actor, at), node).await;
    assert_eq!(exported.unwrap(), kit.stored("a"));
    let event = Event::in_org("database.export", at.org, at.project, json!({ "export": export }));
    assert_eq!(kit.audited().await, [Audit::of(&kit.actor, event)]);
    assert!(kit.part(at).await.unwrap().exports.is_empty());
    // A late copy of the report changes nothing.
    let before = kit.db_rows("SELECT * FROM databases.exports").await;
    kit.report_export(at, export, Err("late")).await;
    assert_eq!(kit.db_rows("SELECT * FROM databases.exports").await, before);

    let node = async {
        let export = kit.pending(at).await;
        kit.report_export(at, export, Err("the disk is full")).await;
    };
    let (failed, ()) = join(kit.databases.export(&kit.actor, at), node).await;
    let error = failed.unwrap_err();
    assert!(error.to_string().contains("the disk is full"), "{error}");
    assert_eq!(code::<()>(Err(error)), "export_failed");
    assert!(kit.generations(at).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_export_of_a_project_is_pending() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let returned = Semaphore::new(0);
    let export = async || {
        let exported = kit.databases.export(&kit.actor, at).await;
        returned.add_permits(1);
        exported
    };
    let node = async {
        let export = kit.pending(at).await;
        // Before the export ends, the other callers are rejected.
        let _others = timeout(TIMEOUT, returned.acquire_many(4)).await.unwrap().unwrap();
        kit.report_export(at, export, Ok(kit.stored("a"))).await;
    };
    let (exported, ()) = join(join_all((0..5).map(|_| export())), node).await;
    let (stored, refused): (Vec<_>, Vec<_>) = exported.into_iter().partition(Result::is_ok);
    assert_eq!((stored.len(), refused.len()), (1, 4));
    assert!(refused.iter().all(|refused| matches!(refused, Err(DatabaseError::OperationInProgress))));
    assert_eq!(kit.audited().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_that_goes_away_leaves_no_pending_export() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let abandoned = tokio::select! {
        exported = kit.databases.export(&kit.actor, at) => panic!("the export ended: {exported:?}"),
        abandoned = kit.pending(at) => abandoned,
    };
    assert_eq!(code(kit.databases.export(&kit.actor, at).await), "operation_in_progress");
    kit.advance(601);
    // The part no longer contains the export, and the export does not block others.
    assert!(kit.part(at).await.unwrap().exports.is_empty());
    let node = async {
        let export = kit.pending(at).await;
        assert_ne!(export, abandoned);
        kit.report_export(at, export, Ok(kit.stored("b"))).await;
    };
    let (exported, ()) = join(kit.databases.export(&kit.actor, at), node).await;
    assert_eq!(exported.unwrap().key, "b");
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.exports WHERE ended_at IS NULL").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deletion_of_the_project_ends_the_wait_for_an_export() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let delete = async {
        kit.pending(at).await;
        kit.db_delete(at).await;
    };
    let (exported, ()) = join(kit.databases.export(&kit.actor, at), delete).await;
    assert_eq!(code(exported), "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn operation_ends_a_pending_export() {
    let kit = Kit::start().await;
    let (at, _) = kit.database("shop").await;
    let chosen = kit.scheduled(at).await;
    let restore = async {
        kit.pending(at).await;
        kit.restore(at, &chosen).await.unwrap();
    };
    let (exported, ()) = join(kit.databases.export(&kit.actor, at), restore).await;
    assert_eq!(code(exported), "export_failed");
    assert!(kit.part(at).await.unwrap().exports.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn export_needs_a_running_placement_with_a_database() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert_eq!(code(kit.databases.export(&kit.actor, at).await), "not_found");
    kit.enable(at).await;
    kit.db_place(at, "state = 'suspended'").await;
    assert_eq!(code(kit.databases.export(&kit.actor, at).await), "suspended");
    kit.db_place(at, "node_id = NULL, state = 'pending'").await;
    assert_eq!(code(kit.databases.export(&kit.actor, at).await), "no_home_node");
    assert_eq!(kit.db_number("SELECT count(*) FROM databases.exports").await, 0);
}
