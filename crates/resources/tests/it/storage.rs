//! Object storage of a project.

use kernel::{Limits, StorageId};
use resources::{StorageStatus, Target};
use store::Connection;

use crate::kit::{Kit, Update};

const GIB: u64 = 1024 * 1024 * 1024;

fn status(enabled: bool, prefix: Option<StorageId>) -> StorageStatus {
    StorageStatus { enabled, prefix, quota_bytes: GIB, used_bytes: 0, reported_at: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn prefix_is_created_once_and_kept() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert_eq!(kit.resources.storage(at).await.unwrap(), status(false, None));
    let granted = kit.resources.storage_grant(&kit.actor, at).await.unwrap();
    let prefix = granted.prefix;
    assert_eq!(granted, status(true, prefix));
    assert!(prefix.unwrap().to_string().starts_with("sto_"));
    kit.resources.storage_revoke(&kit.actor, at).await.unwrap();
    assert_eq!(kit.resources.storage(at).await.unwrap(), status(false, prefix));
    assert_eq!(kit.resources.storage_grant(&kit.actor, at).await.unwrap(), granted);
    assert_eq!(kit.resources.storage(at).await.unwrap(), granted);
    // A later project of the same name has another prefix.
    kit.db_delete(at).await;
    let later = kit.db_project("shop").await;
    assert_eq!(kit.resources.storage(later).await.unwrap(), status(false, None));
    assert_ne!(kit.resources.storage_grant(&kit.actor, later).await.unwrap().prefix, prefix);
}

#[tokio::test(flavor = "multi_thread")]
async fn node_receives_granted_storage_with_quota_of_plan() {
    let mut limits = Limits::default();
    (limits.free.storage_bytes, limits.pro.storage_bytes) = (10, 20);
    let kit = Kit::with(limits).await;
    let [granted, revoked, never] = [kit.db_project("a").await, kit.db_project("b").await, kit.db_project("c").await];
    for at in [granted, revoked] {
        kit.resources.storage_grant(&kit.actor, at).await.unwrap();
    }
    kit.resources.storage_revoke(&kit.actor, revoked).await.unwrap();
    let projects = [granted.project, revoked.project, never.project];
    for (plan, quota) in [("free", 10), ("pro", 20)] {
        kit.db_execute(&format!("UPDATE orgs.orgs SET plan = '{plan}'")).await;
        let loaded = kit.values.storage(&mut *kit.connection().await, &projects).await.unwrap();
        let prefix = kit.resources.storage(granted).await.unwrap().prefix.unwrap();
        let loaded: Vec<_> = loaded.into_iter().map(|(project, it)| (project, it.prefix, it.quota_bytes)).collect();
        assert_eq!(loaded, [(granted.project, prefix, quota)]);
    }
}

impl Kit {
    async fn purge(&self, targets: &[Target]) {
        let projects: Vec<_> = targets.iter().map(|at| at.project).collect();
        let work = async |tx: &mut Connection| self.resources.storage_purge(tx, &projects).await;
        self.store.transaction_unaudited(work).await.unwrap();
    }

    async fn report_deleted(&self, at: Target, prefix: StorageId) {
        let work = async |tx: &mut Connection| self.resources.storage_deleted(tx, at.project, prefix).await;
        self.store.transaction_unaudited(work).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_purged_project_are_deleted_until_the_node_reports_it() {
    let kit = Kit::start().await;
    let [granted, revoked, never] = [kit.db_project("a").await, kit.db_project("b").await, kit.db_project("c").await];
    let prefix = async |at| kit.resources.storage_grant(&kit.actor, at).await.unwrap().prefix.unwrap();
    let (first, second) = (prefix(granted).await, prefix(revoked).await);
    kit.resources.storage_revoke(&kit.actor, revoked).await.unwrap();
    kit.node.take_updates();
    // No report deletes the storage of an existing project.
    kit.report_deleted(granted, first).await;
    kit.report_deleted(revoked, second).await;
    assert_eq!(kit.node.take_updates(), []);
    for at in [granted, revoked, never] {
        kit.db_delete(at).await;
    }
    kit.purge(&[granted, revoked, never]).await;
    let mut published = kit.node.take_updates();
    published.sort_by_key(|update| *update != Update::Deletion(granted.project, first));
    assert_eq!(published, [Update::Deletion(granted.project, first), Update::Deletion(revoked.project, second)]);
    // A report about another prefix, and a repeated one, change nothing.
    kit.report_deleted(granted, second).await;
    for ended in [vec![Update::Ended(granted.project)], vec![]] {
        kit.report_deleted(granted, first).await;
        assert_eq!(kit.node.take_updates(), ended);
    }
    assert_eq!(kit.db_number("SELECT count(*) FROM resources.storage").await, 1);
}
