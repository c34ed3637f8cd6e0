//! Object storage of a project.

use kernel::{Limits, StorageId};
use resources::StorageStatus;

use crate::kit::Kit;

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
