//! A node that is no longer.

use std::time::Duration;

use convergence::{ConvergenceError, NodeView};
use futures_util::future::join_all;
use kernel::Failure as _;
use serde_json::json;

use crate::kit::{Kit, Placed, operator, site, sites};

#[tokio::test(flavor = "multi_thread")]
async fn its_projects_go_to_the_nodes_with_the_fewest() {
    let kit = Kit::start().await;
    let gone = kit.node("gone").await;
    let moving: Vec<_> = (0..5).map(|_| kit.project()).collect();
    for &project in &moving {
        kit.converge(project, Some(site(1))).await;
    }
    let (one, two) = (kit.node("one").await.node.id, kit.node("two").await.node.id);
    kit.converge(kit.project(), Some(site(2))).await;
    let name = gone.node.name.clone();
    kit.audited().await;
    let revoked = kit.nodes.revoke(&operator(), &name).await.unwrap();
    assert_eq!((revoked.moved, revoked.waiting, &revoked.node), (5, 0, &gone.node));
    assert_eq!(kit.audited().await[0].data, json!({ "name": "gone", "moved": 5, "waiting": 0 }));
    let (one, two) = (sites(&kit.desired(one, 0).await), sites(&kit.desired(two, 0).await));
    assert_eq!((one.len(), two.len()), (3, 3));
    let listed: Vec<_> = one.iter().chain(&two).map(|placed| placed.project).collect();
    assert!(moving.iter().all(|project| listed.contains(project)));
    let ended = kit.nodes.authenticate(&gone.token).await;
    assert!(matches!(ended, Err(ConvergenceError::UnknownNode)));
    let again = kit.nodes.revoke(&operator(), &name).await.unwrap_err();
    assert_eq!(again.code(), &kernel::Code::NOT_FOUND);
    // The name is free.
    kit.nodes.add(&operator(), name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_another_its_projects_wait_for_one() {
    let kit = Kit::start().await;
    let name = kit.node("only").await.node.name;
    let project = kit.project();
    kit.converge(project, Some(site(1))).await;
    let revoked = kit.nodes.revoke(&operator(), &name).await.unwrap();
    assert_eq!((revoked.moved, revoked.waiting), (0, 1));
    kit.converge(project, Some(site(2))).await;
    let next = kit.node("next").await.node.id;
    let sites = sites(&kit.desired(next, 0).await);
    assert_eq!(sites, [Placed { project, revision: sites[0].revision, part: Some(site(2)) }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_of_the_new_home_is_woken() {
    let kit = Kit::start().await;
    let name = kit.node("gone").await.node.name;
    let project = kit.project();
    kit.converge(project, Some(site(1))).await;
    let heir = kit.node("heir").await.node.id;
    let convergence = kit.listening();
    let since = kit.desired(heir, 0).await.revision;
    let poll = convergence.desired(heir, since, Duration::from_secs(30));
    let revoking = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        kit.nodes.revoke(&operator(), &name).await.unwrap();
    };
    let (news, ()) = tokio::join!(poll, revoking);
    assert_eq!(sites(&news.unwrap())[0].project, project);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_deployed_meanwhile_has_a_home_afterwards() {
    let kit = Kit::start().await;
    for round in 0..10 {
        let name = kit.node(&format!("gone-{round}")).await.node.name;
        let heir = kit.node(&format!("heir-{round}")).await.node;
        let projects: Vec<_> = (0..12).map(|_| kit.project()).collect();
        for &project in &projects[..6] {
            kit.converge(project, Some(site(1))).await;
        }
        let deploys = join_all(projects.iter().map(|&project| kit.converge(project, Some(site(2)))));
        let operator = operator();
        let (_, revoked) = tokio::join!(deploys, kit.nodes.revoke(&operator, &name));
        revoked.unwrap();
        let homeless = "SELECT count(*) FROM convergence.placements WHERE node_id IS NULL";
        assert_eq!(kit.db_number(homeless).await, 0);
        let sites = sites(&kit.desired(heir.id, 0).await);
        let is_there = |project| sites.iter().any(|placed| placed.project == project && placed.part == Some(site(2)));
        assert!(projects.iter().all(|&project| is_there(project)));
        let tidy = format!("DELETE FROM convergence.placements WHERE node_id = '{}'", heir.id.as_uuid());
        kit.db_execute(&tidy).await;
        kit.nodes.revoke(&operator, &heir.name).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_where_projects_are_and_who_was_here() {
    let kit = Kit::start().await;
    let (one, two) = (kit.node("b-one").await.node, kit.node("a-two").await.node);
    kit.converge(kit.project(), Some(site(1))).await;
    let now = kit.store.world().now();
    kit.desired(one.id, 0).await;
    let list = kit.nodes.list().await.unwrap();
    let busy = list.iter().position(|view| view.placements == 1).unwrap();
    assert_eq!(list.iter().map(|view| view.placements).sum::<i64>(), 1);
    assert_eq!([&list[0].node, &list[1].node], [&two, &one]);
    assert_eq!((list[0].seen_at, list[1].seen_at), (None, Some(now)));
    let NodeView { node, .. } = &list[busy];
    assert_eq!(kit.desired(node.id, 0).await.parts.len(), 1);
}
