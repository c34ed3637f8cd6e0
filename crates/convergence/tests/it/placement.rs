//! Placement: a project is placed on the node with the fewest placements, and stays there.

use std::collections::BTreeMap;

use convergence::{ConvergenceError, NewNode, NodeKind, PlacementRepository as _};
use kernel::{NodeId, ProjectId};
use store::Outcome;

use crate::kit::{Kit, ProjectPart, deploy_event, operator, site, sites};

/// Counts the projects on each node.
async fn loads(kit: &Kit, projects: &[ProjectId]) -> BTreeMap<NodeId, usize> {
    let (mut loads, mut connection) = (BTreeMap::new(), kit.connection().await);
    for project in projects {
        let home = connection.placement_lock(*project).await.unwrap().map(|placement| placement.home).unwrap();
        *loads.entry(home.unwrap()).or_default() += 1;
    }
    loads
}

#[tokio::test(flavor = "multi_thread")]
async fn new_project_is_placed_on_node_with_fewest_placements() {
    let kit = Kit::start().await;
    let nodes: Vec<NodeId> = [kit.add_node("a").await, kit.add_node("b").await].map(|new| new.node.id).to_vec();
    let mut projects: Vec<ProjectId> = (0..9).map(|_| kit.new_project()).collect();
    for project in &projects {
        kit.set_site(*project, Some(site(1))).await;
    }
    let mut counts: Vec<usize> = loads(&kit, &projects).await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [4, 5]);
    // A node that is added later gets the new projects until it has the same number.
    let late = kit.add_node("c").await.node.id;
    assert!(!nodes.contains(&late));
    for _ in 0..4 {
        projects.push(kit.new_project());
        kit.set_site(projects[projects.len() - 1], Some(site(1))).await;
    }
    assert_eq!(loads(&kit, &projects[9..]).await, BTreeMap::from([(late, 4)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn new_project_is_placed_on_silent_node_only_if_all_nodes_are_silent() {
    let kit = Kit::start().await;
    let (running, idle) = (kit.add_node("running").await, kit.add_node("idle").await);
    let poll = async |node: &NewNode| kit.convergence.authenticate(&node.token, NodeKind::App).await.unwrap();
    let place = async || {
        let project = kit.new_project();
        kit.set_site(project, Some(site(1))).await;
        loads(&kit, &[project]).await.into_keys().next().unwrap()
    };
    // The other node has fewer placements, but was never started.
    assert_eq!(poll(&running).await, running.node.id);
    for _ in 0..2 {
        assert_eq!(place().await, running.node.id);
    }
    kit.advance(120);
    assert_eq!(place().await, running.node.id);
    // Now both are silent.
    kit.advance(1);
    assert_eq!(place().await, idle.node.id);
    poll(&running).await;
    assert_eq!(place().await, running.node.id);
    poll(&idle).await;
    assert_eq!(place().await, idle.node.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_stays_on_home_node() {
    let kit = Kit::start().await;
    let home = kit.add_node("home").await.node.id;
    let project = kit.new_project();
    kit.set_site(project, Some(site(1))).await;
    let idle = kit.add_node("idle").await.node.id;
    for desired in [Some(site(2)), None, Some(site(3))] {
        kit.set_site(project, desired).await;
    }
    assert_eq!(
        kit.connection().await.placement_lock(project).await.unwrap().map(|placement| placement.home),
        Some(Some(home))
    );
    assert_eq!(sites(&kit.desired(home, 0).await), [ProjectPart { project, revision: 5, part: Some(site(3)) }]);
    assert_eq!(kit.desired(idle, 0).await.parts, []);
    assert_eq!(
        kit.connection().await.placement_lock(kit.new_project()).await.unwrap().map(|placement| placement.home),
        None
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn first_node_gets_pending_projects() {
    let kit = Kit::start().await;
    let projects: Vec<ProjectId> = (0..5).map(|_| kit.new_project()).collect();
    for (project, version) in projects.iter().zip(1..) {
        kit.set_site(*project, Some(site(version))).await;
    }
    kit.set_site(projects[0], Some(site(9))).await;
    let count_pending = "SELECT count(*) FROM convergence.placements WHERE state = 'pending' AND node_id IS NULL";
    assert_eq!(kit.db_number(count_pending).await, 5);
    assert_eq!(
        kit.connection().await.placement_lock(projects[0]).await.unwrap().map(|placement| placement.home),
        Some(None)
    );

    let node = kit.add_node("first").await.node.id;
    assert_eq!(kit.db_number(count_pending).await, 0);
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 6);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=6));
    let mut placed: Vec<(ProjectId, i32)> =
        sites(&desired).into_iter().map(|site| (site.project, site.part.unwrap().version)).collect();
    placed.sort();
    let mut expected: Vec<(ProjectId, i32)> = projects.iter().copied().zip([9, 2, 3, 4, 5]).collect();
    expected.sort();
    assert_eq!(placed, expected);
    assert_eq!(kit.desired(kit.add_node("second").await.node.id, 0).await.parts, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn relist_assigns_project_written_while_node_was_added() {
    let kit = Kit::start().await;
    let (project, actor) = (kit.new_project(), operator());
    let write = kit.store.transaction(&actor, async |tx| {
        kit.write_site(tx, project, Some(site(1))).await?;
        // The two transactions do not see each other.
        let node = kit.add_node("edge").await.node.id;
        Ok::<_, ConvergenceError>(Outcome::Changed(node, deploy_event(project)))
    });
    let node = write.await.unwrap();
    assert_eq!(
        kit.connection().await.placement_lock(project).await.unwrap().map(|placement| placement.home),
        Some(None)
    );
    kit.audited().await;

    let full = kit.desired(node, 0).await;
    assert_eq!((full.revision, full.full), (2, true));
    assert_eq!(sites(&full), [ProjectPart { project, revision: 2, part: Some(site(1)) }]);
    let [audit] = kit.audited().await.try_into().unwrap();
    assert_eq!((audit.event.as_str(), audit.credential.as_str()), ("node.assign", "service"));
    assert_eq!(audit.target, node.to_string());
    assert_eq!(kit.desired(node, 0).await, full);
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn rolled_back_write_places_nothing() {
    let kit = Kit::start().await;
    let node = kit.add_node("edge").await.node.id;
    let (placed, unplaced) = (kit.new_project(), kit.new_project());
    kit.set_site(placed, Some(site(1))).await;
    let failed = kit
        .store
        .transaction(&operator(), async |tx| -> Result<Outcome<()>, ConvergenceError> {
            kit.write_site(tx, placed, Some(site(2))).await?;
            kit.write_site(tx, unplaced, Some(site(1))).await?;
            Err(ConvergenceError::NotPlacedOnNode)
        })
        .await;
    assert!(matches!(failed, Err(ConvergenceError::NotPlacedOnNode)));
    assert_eq!(kit.connection().await.placement_lock(unplaced).await.unwrap().map(|placement| placement.home), None);
    let desired = kit.desired(node, 0).await;
    assert_eq!(
        (desired.revision, sites(&desired)),
        (2, vec![ProjectPart { project: placed, revision: 2, part: Some(site(1)) }])
    );
}
