//! Going back: the live pointer moves, and nothing else.

use futures_util::future::join_all;
use kernel::{Paging, Plan};
use projects::{ProjectError, Rollback};
use serde_json::json;

use crate::kit::Kit;

#[tokio::test(flavor = "multi_thread")]
async fn an_older_version_is_live_again_and_no_deployment_is_made() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let project = kit.project(&org, "shop").await.id;
    let one = kit.deploy(&org, project, "one").await.unwrap();
    let two = kit.deploy(&org, project, "two").await.unwrap();
    kit.audited().await;
    kit.node.told();

    let back = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
    assert_eq!(back, one);
    let [(told, live)] = kit.node.told().try_into().unwrap();
    assert_eq!((told, live.version, live.bundle, live.size_bytes), (project, 1, one.digest, one.size_bytes));
    let data = json!({ "from": 2, "to": 1 });
    assert_eq!(kit.audited().await, [kit.tells("deployment.rollback", &org, project, data)]);
    let list = kit.projects.deployments(project, &Paging::default()).await.unwrap().items;
    let shown: Vec<_> = list.iter().map(|it| (it.id, it.version, it.live)).collect();
    assert_eq!(shown, [(two.id, 2, false), (one.id, 1, true)]);

    // To where it is already: an answer, and no change.
    let again = kit.projects.rollback(&kit.actor, &org, project, Rollback { version: 1 }).await.unwrap();
    assert_eq!(again, one);
    assert_eq!((kit.audited().await, kit.node.told()), (vec![], vec![]));

    // The numbers go on where they were.
    assert_eq!(kit.deploy(&org, project, "three").await.unwrap().version, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_going_to_what_never_was() {
    let kit = Kit::start().await;
    let org = kit.db_org("acme", Plan::Free).await;
    let (shop, blog) = (kit.project(&org, "shop").await.id, kit.project(&org, "blog").await.id);
    kit.deploy(&org, shop, "one").await.unwrap();
    kit.deploy(&org, blog, "one").await.unwrap();
    kit.deploy(&org, blog, "two").await.unwrap();
    kit.audited().await;
    kit.node.told();
    for version in [2, 0, -1, i32::MAX] {
        let refused = kit.projects.rollback(&kit.actor, &org, shop, Rollback { version }).await;
        assert!(matches!(refused, Err(ProjectError::VersionNotFound)), "{refused:?}");
    }
    let nowhere = kit.store.world().id();
    let refused = kit.projects.rollback(&kit.actor, &org, nowhere, Rollback { version: 1 }).await;
    assert!(matches!(refused, Err(ProjectError::NotFound)), "{refused:?}");
    assert_eq!((kit.audited().await, kit.node.told()), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_fails_moves_nothing() {
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
async fn rollbacks_and_uploads_at_once_are_told_in_the_order_they_took_effect() {
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
    let told = kit.node.told();
    assert_eq!(told.last().unwrap().1.version, live);
    // One for each audit row: a rollback that found its version live already has neither.
    assert_eq!(kit.audited().await.len(), told.len());
}
