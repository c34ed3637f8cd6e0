//! Rollbacks change the live version and nothing else.

use futures_util::future::join_all;
use kernel::{Paging, Plan};
use projects::{ProjectError, Rollback};
use serde_json::json;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn rollback_makes_an_earlier_version_live() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let one = kit.deploy(&org, project, "one").await.unwrap();
    let two = kit.deploy(&org, project, "two").await.unwrap();
    kit.audited().await;
    kit.node.take_updates();

    let target = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
    assert_eq!(target, one);
    let [(updated, live)] = kit.node.take_updates().try_into().unwrap();
    assert_eq!((updated, live.version, live.bundle, live.size_bytes), (project, 1, one.digest, one.size_bytes));
    let data = json!({ "from": 2, "to": 1 });
    assert_eq!(kit.audited().await, [kit.audit_row("deployment.rollback", &org, project, data)]);
    let list = kit.projects.deployments(project, &Paging::default()).await.unwrap().items;
    let listed: Vec<_> = list.iter().map(|it| (it.id, it.version, it.live)).collect();
    assert_eq!(listed, [(two.id, 2, false), (one.id, 1, true)]);

    // A rollback to the live version is a no-op.
    let again = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
    assert_eq!(again, one);
    assert_eq!((kit.audited().await, kit.node.take_updates()), (vec![], vec![]));

    // Version numbers continue.
    assert_eq!(kit.deploy(&org, project, "three").await.unwrap().version, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_to_an_unknown_version_is_rejected() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    kit.deploy(&org, shop, "one").await.unwrap();
    kit.deploy(&org, blog, "one").await.unwrap();
    kit.deploy(&org, blog, "two").await.unwrap();
    kit.audited().await;
    kit.node.take_updates();
    for version in [2, 0, -1, i32::MAX] {
        let refused = kit.projects.rollback(&kit.actor, &org, shop, Rollback { version }).await;
        assert!(matches!(refused, Err(ProjectError::VersionNotFound)), "{refused:?}");
    }
    let unknown = kit.store.clock_rng().id();
    let refused = kit.projects.rollback(&kit.actor, &org, unknown, Rollback { version: 1 }).await;
    assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
    assert_eq!((kit.audited().await, kit.node.take_updates()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_rollback_changes_nothing() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.deploy(&org, project, "one").await.unwrap();
    let two = kit.deploy(&org, project, "two").await.unwrap();
    kit.audited().await;
    kit.node.fail(1);
    let failed = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await;
    assert!(matches!(failed, Err(ProjectError::Store(_))), "{failed:?}");
    assert_eq!(kit.audited().await, []);
    assert_eq!(kit.projects.detail(&org, project).await.unwrap().live, Some(two));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_rollbacks_and_uploads_update_the_node_in_order() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    kit.deploy(&org, project, "one").await.unwrap();
    let changes = (0..20).map(async |n| {
        if n % 2 == 0 {
            kit.deploy(&org, project, &format!("page {n}")).await.unwrap();
        } else {
            kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
        }
    });
    join_all(changes).await;
    let live = kit.projects.detail(&org, project).await.unwrap().live.unwrap().version;
    let updates = kit.node.take_updates();
    assert_eq!(updates.last().unwrap().1.version, live);
    // Each rollback has one update and one audit row. A no-op rollback has neither.
    assert_eq!(kit.audited().await.len(), updates.len());
}
