//! The revocation of a node.

use std::time::Duration;

use convergence::{ConvergenceError, NewNode, NodeKind, NodeView};
use futures_util::future::join_all;
use kernel::ApiError as _;
use serde_json::json;

use crate::kit::{Kit, ProjectPart, operator, site, sites};

#[tokio::test(flavor = "multi_thread")]
async fn projects_move_to_nodes_with_fewest_placements() {
    let kit = Kit::start().await;
    let revoked_node = kit.add_node("revoked").await;
    let moving: Vec<_> = (0..5).map(|_| kit.new_project()).collect();
    for &project in &moving {
        kit.set_site(project, Some(site(1))).await;
    }
    let (one, two) = (kit.add_node("one").await.node.id, kit.add_node("two").await.node.id);
    kit.set_site(kit.new_project(), Some(site(2))).await;
    let name = revoked_node.node.name.clone();
    kit.audited().await;
    let revocation = kit.nodes.revoke(&operator(), &name).await.unwrap();
    assert_eq!((revocation.moved, revocation.pending, &revocation.node), (5, 0, &revoked_node.node));
    assert_eq!(kit.audited().await[0].data, json!({ "name": "revoked", "moved": 5, "waiting": 0 }));
    let (one, two) = (sites(&kit.desired(one, 0).await), sites(&kit.desired(two, 0).await));
    assert_eq!((one.len(), two.len()), (3, 3));
    let listed: Vec<_> = one.iter().chain(&two).map(|site| site.project).collect();
    assert!(moving.iter().all(|project| listed.contains(project)));
    let authenticated = kit.nodes.authenticate(&revoked_node.token, NodeKind::App).await;
    assert!(matches!(authenticated, Err(ConvergenceError::UnknownNode)));
    let again = kit.nodes.revoke(&operator(), &name).await.unwrap_err();
    assert_eq!(again.code(), &kernel::Code::NOT_FOUND);
    // The name is available again.
    kit.nodes.add(&operator(), name, NodeKind::App).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_do_not_move_to_a_silent_node() {
    let kit = Kit::start().await;
    let name = kit.add_node("revoked").await.node.name;
    for _ in 0..3 {
        kit.set_site(kit.new_project(), Some(site(1))).await;
    }
    let (running, idle) = (kit.add_node("running").await, kit.add_node("idle").await.node.id);
    kit.convergence.authenticate(&running.token, NodeKind::App).await.unwrap();
    let revocation = kit.nodes.revoke(&operator(), &name).await.unwrap();
    assert_eq!((revocation.moved, revocation.pending), (3, 0));
    assert_eq!(sites(&kit.desired(running.node.id, 0).await).len(), 3);
    assert_eq!(sites(&kit.desired(idle, 0).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_of_a_full_node_move_in_batches() {
    let kit = Kit::start().await;
    let full = kit.add_node("full").await;
    let new_home = kit.add_node("new-home").await.node.id;
    let insert = format!(
        "INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
             SELECT gen_random_uuid(), '{0}', 'active', 1, now() FROM generate_series(1, 2500); \
         INSERT INTO convergence.parts (project_id, part, node_id, revision, desired, updated_at) \
             SELECT project_id, 'site', '{0}', 10 + row_number() OVER (), '{{}}', now() FROM convergence.placements",
        full.node.id.as_uuid()
    );
    kit.db_execute(&insert).await;
    kit.audited().await;
    // The third batch fails, and with it the deletion of the node.
    let refuse = "CREATE TRIGGER stay BEFORE DELETE ON convergence.nodes FOR EACH ROW \
         EXECUTE FUNCTION store.reject_change()";
    kit.db_execute(refuse).await;
    kit.nodes.revoke(&operator(), &full.node.name).await.unwrap_err();
    let authenticated = kit.nodes.authenticate(&full.token, NodeKind::App).await;
    assert!(matches!(authenticated, Err(ConvergenceError::UnknownNode)));
    kit.db_execute("DROP TRIGGER stay ON convergence.nodes").await;
    let revocation = kit.nodes.revoke(&operator(), &full.node.name).await.unwrap();
    assert_eq!((revocation.moved, revocation.pending), (500, 0));
    let mut moved: Vec<_> = kit.audited().await.into_iter().map(|row| row.data["moved"].clone()).collect();
    moved.sort_by_key(|moved| moved.as_u64());
    assert_eq!(moved, [json!(500), json!(1000), json!(1000)]);
    for table in ["placements", "parts"] {
        let on_new_home = format!("SELECT count(*) FROM convergence.{table} WHERE node_id = '{}'", new_home.as_uuid());
        assert_eq!(kit.db_number(&on_new_home).await, 2500, "{table}");
    }
    let nodes = kit.nodes.list().await.unwrap();
    assert_eq!(nodes.iter().map(|view| (view.node.id, view.placements)).collect::<Vec<_>>(), [(new_home, 2500)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_of_only_node_become_pending() {
    let kit = Kit::start().await;
    let name = kit.add_node("only").await.node.name;
    let project = kit.new_project();
    kit.set_site(project, Some(site(1))).await;
    let revocation = kit.nodes.revoke(&operator(), &name).await.unwrap();
    assert_eq!((revocation.moved, revocation.pending), (0, 1));
    kit.set_site(project, Some(site(2))).await;
    let next = kit.add_node("next").await.node.id;
    let sites = sites(&kit.desired(next, 0).await);
    assert_eq!(sites, [ProjectPart { project, revision: sites[0].revision, part: Some(site(2)) }]);
}

#[tokio::test(flavor = "multi_thread")]
async fn revocation_wakes_poll_of_new_home_node() {
    let kit = Kit::start().await;
    let name = kit.add_node("revoked").await.node.name;
    let project = kit.new_project();
    kit.set_site(project, Some(site(1))).await;
    let new_home = kit.add_node("new-home").await.node.id;
    let convergence = kit.with_listener();
    let since = kit.desired(new_home, 0).await.revision;
    let poll = convergence.desired(new_home, since, Duration::from_secs(30));
    let revoke = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        kit.nodes.revoke(&operator(), &name).await.unwrap();
    };
    let (changes, ()) = tokio::join!(poll, revoke);
    assert_eq!(sites(&changes.unwrap())[0].project, project);
}

#[tokio::test(flavor = "multi_thread")]
async fn deploys_during_revocation_get_home_node() {
    let kit = Kit::start().await;
    for round in 0..10 {
        let name = kit.add_node(&format!("revoked-{round}")).await.node.name;
        let new_home = kit.add_node(&format!("new-home-{round}")).await.node;
        let projects: Vec<_> = (0..12).map(|_| kit.new_project()).collect();
        for &project in &projects[..6] {
            kit.set_site(project, Some(site(1))).await;
        }
        let deploys = join_all(projects.iter().map(|&project| kit.set_site(project, Some(site(2)))));
        let operator = operator();
        let (_, revocation) = tokio::join!(deploys, kit.nodes.revoke(&operator, &name));
        revocation.unwrap();
        let pending = "SELECT count(*) FROM convergence.placements WHERE node_id IS NULL";
        assert_eq!(kit.db_number(pending).await, 0);
        let sites = sites(&kit.desired(new_home.id, 0).await);
        let has_latest_site =
            |project| sites.iter().any(|found| found.project == project && found.part == Some(site(2)));
        assert!(projects.iter().all(|&project| has_latest_site(project)));
        let delete_placements =
            format!("DELETE FROM convergence.placements WHERE node_id = '{}'", new_home.id.as_uuid());
        kit.db_execute(&delete_placements).await;
        kit.nodes.revoke(&operator, &new_home.name).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn list_contains_placements_and_last_request() {
    let kit = Kit::start().await;
    let (NewNode { node: one, token }, two) = (kit.add_node("b-one").await, kit.add_node("a-two").await.node);
    kit.set_site(kit.new_project(), Some(site(1))).await;
    let now = kit.now();
    kit.convergence.authenticate(&token, NodeKind::App).await.unwrap();
    let list = kit.nodes.list().await.unwrap();
    let busy = list.iter().position(|view| view.placements == 1).unwrap();
    assert_eq!(list.iter().map(|view| view.placements).sum::<i64>(), 1);
    assert_eq!([&list[0].node, &list[1].node], [&two, &one]);
    assert_eq!((list[0].last_seen_at, list[1].last_seen_at), (None, Some(now)));
    let NodeView { node, .. } = &list[busy];
    assert_eq!(kit.desired(node.id, 0).await.parts.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_all_kinds_of_nodes_are_recorded_once_a_minute() {
    let kit = Kit::start().await;
    for kind in [NodeKind::App, NodeKind::Git, NodeKind::Mail] {
        let new = kit.nodes.add(&operator(), kind.to_string().parse().unwrap(), kind).await.unwrap();
        // Only requests of the node count, not checks of its credential by xtask.
        kit.nodes.authenticate(&new.token, kind).await.unwrap();
        let last_seen = async || {
            let list = kit.nodes.list().await.unwrap();
            list.into_iter().find(|view| view.node == new.node).unwrap().last_seen_at
        };
        assert_eq!(last_seen().await, None, "{kind}");
        let start = kit.now();
        for (advance, expected) in [(0, start), (59, start), (1, start.plus_seconds(60))] {
            kit.advance(advance);
            assert_eq!(kit.convergence.authenticate(&new.token, kind).await.unwrap(), new.node.id);
            assert_eq!(last_seen().await, Some(expected), "{kind}");
        }
    }
}
