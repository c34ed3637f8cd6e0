//! Where a project lives: with the node that has the least, and from then on there.

use std::collections::BTreeMap;

use convergence::{ConvergenceError, PlacementRepository as _};
use kernel::{NodeId, ProjectId};
use store::Outcome;

use crate::kit::{Kit, Placed, deployed, operator, site, sites};

/// How many projects each node has.
async fn loads(kit: &Kit, projects: &[ProjectId]) -> BTreeMap<NodeId, usize> {
    let (mut loads, mut connection) = (BTreeMap::new(), kit.connection().await);
    for project in projects {
        let home = connection.placement_home(*project).await.unwrap().unwrap();
        *loads.entry(home.unwrap()).or_default() += 1;
    }
    loads
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_project_goes_to_the_node_that_has_the_fewest() {
    let kit = Kit::start().await;
    let nodes: Vec<NodeId> = [kit.node("a").await, kit.node("b").await].map(|new| new.node.id).to_vec();
    let mut projects: Vec<ProjectId> = (0..9).map(|_| kit.project()).collect();
    for project in &projects {
        kit.converge(*project, Some(site(1))).await;
    }
    let mut counts: Vec<usize> = loads(&kit, &projects).await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [4, 5]);
    // One that arrives later takes what is new until it has as much.
    let late = kit.node("c").await.node.id;
    assert!(!nodes.contains(&late));
    for _ in 0..4 {
        projects.push(kit.project());
        kit.converge(projects[projects.len() - 1], Some(site(1))).await;
    }
    assert_eq!(loads(&kit, &projects[9..]).await, BTreeMap::from([(late, 4)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_stays_where_it_is_whatever_becomes_of_it() {
    let kit = Kit::start().await;
    let home = kit.node("home").await.node.id;
    let project = kit.project();
    kit.converge(project, Some(site(1))).await;
    let idle = kit.node("idle").await.node.id;
    for desired in [Some(site(2)), None, Some(site(3))] {
        kit.converge(project, desired).await;
    }
    assert_eq!(kit.connection().await.placement_home(project).await.unwrap(), Some(Some(home)));
    assert_eq!(sites(&kit.desired(home, 0).await), [Placed { project, revision: 5, part: Some(site(3)) }]);
    assert_eq!(kit.desired(idle, 0).await.parts, []);
    assert_eq!(kit.connection().await.placement_home(kit.project()).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_node_is_taken_by_the_first_one() {
    let kit = Kit::start().await;
    let projects: Vec<ProjectId> = (0..5).map(|_| kit.project()).collect();
    for (project, version) in projects.iter().zip(1..) {
        kit.converge(*project, Some(site(version))).await;
    }
    kit.converge(projects[0], Some(site(9))).await;
    let waiting = "SELECT count(*) FROM convergence.placements WHERE state = 'pending' AND node_id IS NULL";
    assert_eq!(kit.db_number(waiting).await, 5);
    assert_eq!(kit.connection().await.placement_home(projects[0]).await.unwrap(), Some(None));

    let node = kit.node("first").await.node.id;
    assert_eq!(kit.db_number(waiting).await, 0);
    let desired = kit.desired(node, 0).await;
    assert_eq!(desired.revision, 6);
    assert!(desired.parts.iter().map(|part| part.revision).eq(2..=6));
    let mut taken: Vec<(ProjectId, i32)> =
        sites(&desired).into_iter().map(|placed| (placed.project, placed.part.unwrap().version)).collect();
    taken.sort();
    let mut expected: Vec<(ProjectId, i32)> = projects.iter().copied().zip([9, 2, 3, 4, 5]).collect();
    expected.sort();
    assert_eq!(taken, expected);
    assert_eq!(kit.desired(kit.node("second").await.node.id, 0).await.parts, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_arrives_in_the_middle_of_a_first_decision_finds_it() {
    let kit = Kit::start().await;
    let (project, actor) = (kit.project(), operator());
    let decided = kit.store.transaction(&actor, async |tx| {
        kit.decide(tx, project, Some(site(1))).await?;
        // Neither sees the other.
        let node = kit.node("edge").await.node.id;
        Ok::<_, ConvergenceError>(Outcome::Changed(node, deployed(project)))
    });
    let node = decided.await.unwrap();
    assert_eq!(kit.connection().await.placement_home(project).await.unwrap(), Some(None));
    kit.audited().await;

    let everything = kit.desired(node, 0).await;
    assert_eq!((everything.revision, everything.full), (2, true));
    assert_eq!(sites(&everything), [Placed { project, revision: 2, part: Some(site(1)) }]);
    let [adopted] = kit.audited().await.try_into().unwrap();
    assert_eq!((adopted.event.as_str(), adopted.target), ("node.adopt", node.to_string()));
    assert_eq!(kit.desired(node, 0).await, everything);
    assert_eq!(kit.audited().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_is_rolled_back_places_nothing() {
    let kit = Kit::start().await;
    let node = kit.node("edge").await.node.id;
    let (placed, refused) = (kit.project(), kit.project());
    kit.converge(placed, Some(site(1))).await;
    let failed = kit
        .store
        .transaction(&operator(), async |tx| -> Result<Outcome<()>, ConvergenceError> {
            kit.decide(tx, placed, Some(site(2))).await?;
            kit.decide(tx, refused, Some(site(1))).await?;
            Err(ConvergenceError::NotPlacedHere)
        })
        .await;
    assert!(matches!(failed, Err(ConvergenceError::NotPlacedHere)));
    assert_eq!(kit.connection().await.placement_home(refused).await.unwrap(), None);
    let desired = kit.desired(node, 0).await;
    assert_eq!(
        (desired.revision, sites(&desired)),
        (2, vec![Placed { project: placed, revision: 2, part: Some(site(1)) }])
    );
}
