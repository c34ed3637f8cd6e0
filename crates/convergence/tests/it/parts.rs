//! Parts of a project's desired state. Each part has one owner, and contexts do not know each other's parts.

use convergence::{AlreadyRegistered, Convergence, ConvergenceError, PartWriter, PlacementRepository as _};
use futures_util::future::join_all;
use kernel::ProjectId;
use protocol::{DesiredPart, Site};
use serde::{Deserialize, Serialize};
use store::{Connection, Outcome};

use crate::kit::{Kit, ProjectPart, deploy_event, embedded_builder, operator, parts, site, sites};

/// A part that is unknown to this crate and to the owner of [`Site`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Quota {
    bytes: u64,
}

impl DesiredPart for Quota {
    const NAME: &'static str = "quota";
}

/// The service with a second context, in addition to the one that owns [`Site`].
struct TwoContexts {
    kit: Kit,
    quota: PartWriter<Quota>,
}

impl TwoContexts {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let quota = embedded_builder(kit.store.clone()).register_part().unwrap();
        Self { kit, quota }
    }

    /// Writes or removes the part of the second context in a separate transaction.
    async fn set_quota(&self, project: ProjectId, bytes: Option<u64>) {
        let work = async |tx: &mut store::Connection| {
            match bytes {
                Some(bytes) => self.quota.write(tx, project, &Quota { bytes }).await?,
                None => self.quota.remove(tx, project).await?,
            }
            Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(project)))
        };
        self.kit.store.transaction(&operator(), work).await.unwrap();
    }
}

fn site_part(project: ProjectId, revision: i64, version: Option<i32>) -> ProjectPart {
    ProjectPart { project, revision, part: version.map(site) }
}

fn quota_part(project: ProjectId, revision: i64, bytes: Option<u64>) -> ProjectPart<Quota> {
    ProjectPart { project, revision, part: bytes.map(|bytes| Quota { bytes }) }
}

#[tokio::test(flavor = "multi_thread")]
async fn desired_state_contains_parts_of_two_contexts() {
    let contexts = TwoContexts::start().await;
    let (node, project) = (contexts.kit.add_node("edge").await.node.id, contexts.kit.new_project());
    contexts.kit.set_site(project, Some(site(1))).await;
    contexts.set_quota(project, Some(10)).await;
    let desired = contexts.kit.desired(node, 0).await;
    assert_eq!(desired.revision, 3);
    assert_eq!(sites(&desired), [site_part(project, 2, Some(1))]);
    assert_eq!(parts::<Quota>(&desired), [quota_part(project, 3, Some(10))]);

    // Each change is one part with one revision; the other part keeps its value and its revision.
    contexts.set_quota(project, Some(20)).await;
    let changes = contexts.kit.desired(node, 3).await;
    assert_eq!((sites(&changes), parts::<Quota>(&changes)), (vec![], vec![quota_part(project, 4, Some(20))]));
    contexts.kit.set_site(project, Some(site(2))).await;
    let changes = contexts.kit.desired(node, 4).await;
    assert_eq!((sites(&changes), parts::<Quota>(&changes)), (vec![site_part(project, 5, Some(2))], vec![]));
    contexts.set_quota(project, None).await;
    let all = contexts.kit.desired(node, 0).await;
    assert_eq!(
        (sites(&all), parts::<Quota>(&all)),
        (vec![site_part(project, 5, Some(2))], vec![quota_part(project, 6, None)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn first_part_of_any_context_places_project() {
    let contexts = TwoContexts::start().await;
    let home = contexts.kit.add_node("home").await.node.id;
    let project = contexts.kit.new_project();
    contexts.set_quota(project, Some(10)).await;
    contexts.kit.add_node("idle").await;
    contexts.kit.set_site(project, Some(site(1))).await;
    assert_eq!(
        contexts.kit.connection().await.placement_lock(project).await.unwrap().map(|placement| placement.home),
        Some(Some(home))
    );
    let desired = contexts.kit.desired(home, 0).await;
    assert_eq!(sites(&desired), [site_part(project, 3, Some(1))]);
    assert_eq!(parts::<Quota>(&desired), [quota_part(project, 2, Some(10))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_projects_on_two_nodes_in_opposite_orders_do_not_deadlock() {
    let kit = Kit::start().await;
    kit.add_node("a").await;
    kit.add_node("b").await;
    let mut placed = Vec::new();
    for _ in 0..4 {
        let project = kit.new_project();
        kit.set_site(project, Some(site(1))).await;
        let home = kit.connection().await.placement_lock(project).await.unwrap().and_then(|placement| placement.home);
        placed.push((home, project));
    }
    // Two projects on the first node, and then two on the second.
    placed.sort();
    let [(a, one), (_, two), (_, three), (b, four)] = placed.as_slice() else { panic!("{placed:?}") };
    assert_ne!(a, b);
    let write = async |projects: [ProjectId; 2]| {
        for version in 2..30 {
            let work = async |tx: &mut Connection| {
                kit.site_writer.lock(tx, &projects).await?;
                for project in projects {
                    kit.write_site(tx, project, Some(site(version))).await?;
                }
                Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(projects[0])))
            };
            kit.store.transaction(&operator(), work).await.unwrap();
        }
    };
    tokio::join!(write([*one, *three]), write([*four, *two]));
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_parts_get_same_home_node() {
    let contexts = TwoContexts::start().await;
    let nodes = [contexts.kit.add_node("a").await.node.id, contexts.kit.add_node("b").await.node.id];
    let projects: Vec<ProjectId> = (0..20).map(|_| contexts.kit.new_project()).collect();
    let write = async |project| {
        tokio::join!(contexts.kit.set_site(project, Some(site(1))), contexts.set_quota(project, Some(10)));
    };
    join_all(projects.iter().map(|project| write(*project))).await;
    let mut found = Vec::new();
    for node in nodes {
        let desired = contexts.kit.desired(node, 0).await;
        // Revisions have no gaps, and all parts of a project are on the same node.
        assert!(desired.parts.iter().map(|part| part.revision).eq(2..=desired.revision));
        let project = |change: &protocol::Change| change.project.clone();
        let mut with_site: Vec<String> = desired.parts.iter().filter(|part| part.part == "site").map(project).collect();
        let mut with_quota: Vec<String> =
            desired.parts.iter().filter(|part| part.part == "quota").map(project).collect();
        with_site.sort();
        with_quota.sort();
        assert_eq!(with_site, with_quota);
        found.extend(with_site);
    }
    let mut expected: Vec<String> = projects.iter().map(ToString::to_string).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_parts_move_with_project() {
    let contexts = TwoContexts::start().await;
    let project = contexts.kit.new_project();
    contexts.set_quota(project, Some(10)).await;
    contexts.kit.set_site(project, Some(site(1))).await;
    // The first node gets the pending parts, each with a separate revision.
    let first = contexts.kit.add_node("first").await.node;
    let desired = contexts.kit.desired(first.id, 0).await;
    assert_eq!(desired.revision, 3);
    assert_eq!(parts::<Quota>(&desired), [quota_part(project, 2, Some(10))]);
    assert_eq!(sites(&desired), [site_part(project, 3, Some(1))]);

    let second = contexts.kit.add_node("second").await.node;
    contexts.kit.nodes.revoke(&operator(), &first.name).await.unwrap();
    let desired = contexts.kit.desired(second.id, 0).await;
    assert_eq!((sites(&desired).len(), parts::<Quota>(&desired).len(), desired.revision), (1, 1, 3));

    // Without another node, the parts become pending. The next node also gets a part that was written in the meantime.
    contexts.kit.nodes.revoke(&operator(), &second.name).await.unwrap();
    contexts.set_quota(project, Some(30)).await;
    let last = contexts.kit.add_node("last").await.node.id;
    let desired = contexts.kit.desired(last, 0).await;
    assert_eq!(parts::<Quota>(&desired), [quota_part(project, 2, Some(30))]);
    assert_eq!(sites(&desired), [site_part(project, 3, Some(1))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn project_removal_removes_parts_of_all_contexts() {
    let contexts = TwoContexts::start().await;
    let node = contexts.kit.add_node("edge").await.node.id;
    let [removed, kept, unplaced] = [(); 3].map(|()| contexts.kit.new_project());
    for project in [removed, kept] {
        contexts.kit.set_site(project, Some(site(1))).await;
        contexts.set_quota(project, Some(10)).await;
    }
    remove_project(&contexts.kit, removed).await;
    let changes = contexts.kit.desired(node, 5).await;
    assert_eq!(changes.revision, 7);
    assert_eq!(
        (sites(&changes), parts::<Quota>(&changes)),
        (vec![site_part(removed, 7, None)], vec![quota_part(removed, 6, None)])
    );
    // A second removal, and the removal of a project without a placement, change nothing.
    remove_project(&contexts.kit, removed).await;
    remove_project(&contexts.kit, unplaced).await;
    assert_eq!(contexts.kit.desired(node, 7).await.revision, 7);
    assert_eq!(
        contexts.kit.connection().await.placement_lock(unplaced).await.unwrap().map(|placement| placement.home),
        Some(None)
    );
}

/// Removes a project like the context that deletes it.
async fn remove_project(kit: &Kit, project: ProjectId) {
    let work = async |tx: &mut store::Connection| {
        embedded_builder(kit.store.clone()).project_remover().remove(tx, project).await?;
        Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(project)))
    };
    kit.store.transaction(&operator(), work).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn write_after_project_removal_is_rejected() {
    let contexts = TwoContexts::start().await;
    let node = contexts.kit.add_node("edge").await.node.id;
    let [active, pending] = [(); 2].map(|()| contexts.kit.new_project());
    contexts.kit.set_site(active, Some(site(1))).await;
    for project in [active, pending] {
        remove_project(&contexts.kit, project).await;
        let error = contexts.kit.try_set_site(project, Some(site(2))).await.unwrap_err();
        assert!(matches!(error, ConvergenceError::ProjectDeleted), "{error:?}");
        // The removal of a part that is not desired is still a no-op.
        contexts.kit.try_set_site(project, None).await.unwrap();
        contexts.set_quota(project, None).await;
    }
    let desired = contexts.kit.desired(node, 0).await;
    assert_eq!((desired.revision, sites(&desired)), (3, vec![site_part(active, 3, None)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_write_during_project_removal_leaves_nothing_desired() {
    let contexts = TwoContexts::start().await;
    let node = contexts.kit.add_node("edge").await.node.id;
    let project = contexts.kit.new_project();
    let ((), write) =
        tokio::join!(remove_project(&contexts.kit, project), contexts.kit.try_set_site(project, Some(site(1))));
    let desired = contexts.kit.desired(node, 0).await;
    // In either order, nothing is desired afterwards.
    assert!(sites(&desired).iter().all(|site| site.part.is_none()), "{write:?}: {desired:?}");
    assert!(matches!(contexts.kit.try_set_site(project, Some(site(1))).await, Err(ConvergenceError::ProjectDeleted)));
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_of_undesired_part_is_no_op() {
    let contexts = TwoContexts::start().await;
    let node = contexts.kit.add_node("edge").await.node.id;
    let [unplaced, other] = [(); 2].map(|()| contexts.kit.new_project());
    contexts.set_quota(unplaced, None).await;
    assert_eq!(contexts.kit.connection().await.placement_lock(unplaced).await.unwrap(), None);
    contexts.kit.set_site(other, Some(site(1))).await;
    contexts.set_quota(other, None).await;
    assert_eq!(contexts.kit.desired(node, 0).await.revision, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_deletes_rows_and_decreases_placement_count() {
    let contexts = TwoContexts::start().await;
    let node = contexts.kit.add_node("edge").await.node.id;
    let [removed, kept] = [(); 2].map(|()| contexts.kit.new_project());
    for project in [removed, kept] {
        contexts.kit.set_site(project, Some(site(1))).await;
        contexts.set_quota(project, Some(10)).await;
    }
    remove_project(&contexts.kit, removed).await;
    let work = async |tx: &mut store::Connection| {
        embedded_builder(contexts.kit.store.clone()).project_remover().purge(tx, &[removed]).await?;
        Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(removed)))
    };
    contexts.kit.store.transaction(&operator(), work).await.unwrap();
    let desired = contexts.kit.desired(node, 0).await;
    assert_eq!(sites(&desired), [site_part(kept, 4, Some(1))]);
    assert_eq!(contexts.kit.db_rows("SELECT * FROM convergence.parts").await.len(), 2);
    assert_eq!(contexts.kit.nodes.list().await.unwrap()[0].placements, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_project_can_be_removed() {
    let contexts = TwoContexts::start().await;
    let project = contexts.kit.new_project();
    contexts.set_quota(project, Some(10)).await;
    remove_project(&contexts.kit, project).await;
    // The project was never placed on a node, so the first node does not receive its removal.
    let node = contexts.kit.add_node("edge").await.node.id;
    assert_eq!(parts::<Quota>(&contexts.kit.desired(node, 0).await), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_has_one_owner() {
    let kit = Kit::start().await;
    let mut builder = embedded_builder(kit.store.clone());
    let _site: PartWriter<Site> = builder.register_part().unwrap();
    // Another context cannot register the same part, not even with another type.
    assert_eq!(builder.register_part::<Site>().unwrap_err(), AlreadyRegistered::Part("site"));
    #[derive(Serialize, Deserialize)]
    struct OtherSite;
    impl DesiredPart for OtherSite {
        const NAME: &'static str = "site";
    }
    assert_eq!(builder.register_part::<OtherSite>().unwrap_err(), AlreadyRegistered::Part("site"));
    let _quota: PartWriter<Quota> = builder.register_part().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn context_cannot_change_part_of_another() {
    let contexts = TwoContexts::start().await;
    let (node, project) = (contexts.kit.add_node("edge").await.node.id, contexts.kit.new_project());
    contexts.kit.set_site(project, Some(site(1))).await;
    let before = contexts.kit.db_rows("SELECT * FROM convergence.parts WHERE part = 'site'").await;
    // The writer of one part cannot change the other part of the same project.
    contexts.set_quota(project, Some(10)).await;
    contexts.set_quota(project, None).await;
    contexts.set_quota(project, Some(20)).await;
    assert_eq!(contexts.kit.db_rows("SELECT * FROM convergence.parts WHERE part = 'site'").await, before);
    assert_eq!(sites(&contexts.kit.desired(node, 0).await), [site_part(project, 2, Some(1))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_without_owner_is_passed_on() {
    let contexts = TwoContexts::start().await;
    let (node, project) = (contexts.kit.add_node("edge").await.node.id, contexts.kit.new_project());
    contexts.set_quota(project, Some(10)).await;
    let other: Convergence = embedded_builder(contexts.kit.store.clone()).build();
    let desired = other.desired(node, 0, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(parts::<Quota>(&desired), [quota_part(project, 2, Some(10))]);
}
