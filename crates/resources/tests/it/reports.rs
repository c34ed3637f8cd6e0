//! Reports of nodes about storage.

use kernel::{Limits, NamedProject};
use resources::{Notice, Target};
use store::Connection;

use crate::kit::Kit;

impl Kit {
    /// Receives a report, and returns the number of notifications that it raises.
    async fn report(&self, at: Target, used_bytes: u64, quota_exceeded: bool) -> usize {
        let work =
            async |tx: &mut Connection| self.resources.storage_report(tx, at.project, used_bytes, quota_exceeded).await;
        self.store.transaction_unaudited(work).await.unwrap();
        let limit_bytes = Limits::default().free.storage_bytes;
        let notices = self.notices.take();
        for raised in &notices {
            let project = NamedProject { id: at.project, name: "shop".to_owned() };
            assert_eq!(*raised, (at.org, Notice::StorageLimit { project, limit_bytes }));
        }
        notices.len()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_that_of_last_report() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.resources.storage_grant(&kit.actor, at).await.unwrap();
    for used in [10_240, 0, 77] {
        kit.advance(60);
        kit.report(at, used, false).await;
        let status = kit.resources.storage(at).await.unwrap();
        assert_eq!((status.used_bytes, status.reported_at), (i64::try_from(used).unwrap(), Some(kit.now())));
    }
    // A report that was in flight during the revocation is stored.
    kit.resources.storage_revoke(&kit.actor, at).await.unwrap();
    kit.report(at, 5, false).await;
    assert_eq!(kit.resources.storage(at).await.unwrap().used_bytes, 5);
    kit.report(at, u64::MAX, false).await;
    assert_eq!(kit.resources.storage(at).await.unwrap().used_bytes, i64::MAX);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_crossing_of_quota_is_notified_once() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    kit.resources.storage_grant(&kit.actor, at).await.unwrap();
    for (quota_exceeded, raised) in
        [(false, 0), (true, 1), (true, 0), (true, 0), (false, 0), (false, 0), (true, 1), (true, 0)]
    {
        assert_eq!(kit.report(at, 100, quota_exceeded).await, raised);
    }
    // The first report about a project can already exceed the quota.
    let other = kit.db_project("other").await;
    kit.resources.storage_grant(&kit.actor, other).await.unwrap();
    kit.db_execute("UPDATE projects.projects SET name = 'shop2' WHERE name = 'shop'").await;
    kit.db_execute("UPDATE projects.projects SET name = 'shop' WHERE name = 'other'").await;
    assert_eq!(kit.report(other, 100, true).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_about_unknown_or_deleted_storage_raise_nothing() {
    let kit = Kit::start().await;
    let at = kit.db_project("shop").await;
    assert_eq!(kit.report(at, 100, true).await, 0);
    assert_eq!(kit.resources.storage(at).await.unwrap().reported_at, None);
    kit.resources.storage_grant(&kit.actor, at).await.unwrap();
    kit.db_delete(at).await;
    assert_eq!(kit.report(at, 100, true).await, 0);
}
