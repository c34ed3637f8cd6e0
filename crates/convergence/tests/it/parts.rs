//! Parts of a project's desired state: each has one owner, and no context knows of the others.

use convergence::{AlreadyRegistered, Convergence, ConvergenceError, Part, PlacementRepository as _};
use futures_util::future::join_all;
use kernel::ProjectId;
use protocol::{DesiredPart, Site};
use serde::{Deserialize, Serialize};
use store::Outcome;

use crate::kit::{Kit, Placed, deployed, embedded, operator, parts, site, sites};

/// The part of a context that this crate and the owner of [`Site`] have never heard of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Quota {
    bytes: u64,
}

impl DesiredPart for Quota {
    const NAME: &'static str = "quota";
}

/// The service with a second context next to the one that deploys.
struct Two {
    kit: Kit,
    quota: Part<Quota>,
}

impl Two {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let quota = embedded(kit.store.clone()).own().unwrap();
        Self { kit, quota }
    }

    /// Decides on the second context's part in its own transaction.
    async fn limit(&self, project: ProjectId, bytes: Option<u64>) {
        let work = async |tx: &mut store::Connection| {
            match bytes {
                Some(bytes) => self.quota.write(tx, project, &Quota { bytes }).await?,
                None => self.quota.remove(tx, project).await?,
            }
            Ok::<_, ConvergenceError>(Outcome::Changed((), deployed(project)))
        };
        self.kit.store.transaction(&operator(), work).await.unwrap();
    }
}

fn placed(project: ProjectId, revision: i64, version: Option<i32>) -> Placed {
    Placed { project, revision, part: version.map(site) }
}

fn limited(project: ProjectId, revision: i64, bytes: Option<u64>) -> Placed<Quota> {
    Placed { project, revision, part: bytes.map(|bytes| Quota { bytes }) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_context_contributes_to_the_desired_state_of_a_node() {
    let two = Two::start().await;
    let (node, project) = (two.kit.node("edge").await.node.id, two.kit.project());
    two.kit.converge(project, Some(site(1))).await;
    two.limit(project, Some(10)).await;
    let desired = two.kit.desired(node, 0).await;
    assert_eq!(desired.revision, 3);
    assert_eq!(sites(&desired), [placed(project, 2, Some(1))]);
    assert_eq!(parts::<Quota>(&desired), [limited(project, 3, Some(10))]);

    // Each change is one part with one revision; the other part keeps its value and its revision.
    two.limit(project, Some(20)).await;
    let news = two.kit.desired(node, 3).await;
    assert_eq!((sites(&news), parts::<Quota>(&news)), (vec![], vec![limited(project, 4, Some(20))]));
    two.kit.converge(project, Some(site(2))).await;
    let news = two.kit.desired(node, 4).await;
    assert_eq!((sites(&news), parts::<Quota>(&news)), (vec![placed(project, 5, Some(2))], vec![]));
    two.limit(project, None).await;
    let all = two.kit.desired(node, 0).await;
    assert_eq!(
        (sites(&all), parts::<Quota>(&all)),
        (vec![placed(project, 5, Some(2))], vec![limited(project, 6, None)])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_part_places_a_project_whichever_context_writes_it() {
    let two = Two::start().await;
    let home = two.kit.node("home").await.node.id;
    let project = two.kit.project();
    two.limit(project, Some(10)).await;
    two.kit.node("idle").await;
    two.kit.converge(project, Some(site(1))).await;
    assert_eq!(two.kit.connection().await.placement_home(project).await.unwrap(), Some(Some(home)));
    let desired = two.kit.desired(home, 0).await;
    assert_eq!(sites(&desired), [placed(project, 3, Some(1))]);
    assert_eq!(parts::<Quota>(&desired), [limited(project, 2, Some(10))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_contexts_that_write_first_parts_concurrently_agree_on_the_home() {
    let two = Two::start().await;
    let nodes = [two.kit.node("a").await.node.id, two.kit.node("b").await.node.id];
    let projects: Vec<ProjectId> = (0..20).map(|_| two.kit.project()).collect();
    let write = async |project| {
        tokio::join!(two.kit.converge(project, Some(site(1))), two.limit(project, Some(10)));
    };
    join_all(projects.iter().map(|project| write(*project))).await;
    let mut placed = Vec::new();
    for node in nodes {
        let desired = two.kit.desired(node, 0).await;
        // Without gaps, and each project's parts at the same node.
        assert!(desired.parts.iter().map(|part| part.revision).eq(2..=desired.revision));
        let project = |change: &protocol::Change| change.project.clone();
        let mut of_sites: Vec<String> = desired.parts.iter().filter(|part| part.part == "site").map(project).collect();
        let mut of_quotas: Vec<String> =
            desired.parts.iter().filter(|part| part.part == "quota").map(project).collect();
        of_sites.sort();
        of_quotas.sort();
        assert_eq!(of_sites, of_quotas);
        placed.extend(of_sites);
    }
    let mut expected: Vec<String> = projects.iter().map(ToString::to_string).collect();
    placed.sort();
    expected.sort();
    assert_eq!(placed, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_parts_move_with_their_project() {
    let two = Two::start().await;
    let project = two.kit.project();
    two.limit(project, Some(10)).await;
    two.kit.converge(project, Some(site(1))).await;
    // Pending parts go to the first node, each with a revision of its own.
    let first = two.kit.node("first").await.node;
    let desired = two.kit.desired(first.id, 0).await;
    assert_eq!(desired.revision, 3);
    assert_eq!(parts::<Quota>(&desired), [limited(project, 2, Some(10))]);
    assert_eq!(sites(&desired), [placed(project, 3, Some(1))]);

    let heir = two.kit.node("heir").await.node;
    two.kit.nodes.revoke(&operator(), &first.name).await.unwrap();
    let desired = two.kit.desired(heir.id, 0).await;
    assert_eq!((sites(&desired).len(), parts::<Quota>(&desired).len(), desired.revision), (1, 1, 3));

    // Without another node they are pending again, and a part that is written meanwhile is found later.
    two.kit.nodes.revoke(&operator(), &heir.name).await.unwrap();
    two.limit(project, Some(30)).await;
    let last = two.kit.node("last").await.node.id;
    let desired = two.kit.desired(last, 0).await;
    assert_eq!(parts::<Quota>(&desired), [limited(project, 2, Some(30))]);
    assert_eq!(sites(&desired), [placed(project, 3, Some(1))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_project_ends_the_parts_of_every_context() {
    let two = Two::start().await;
    let node = two.kit.node("edge").await.node.id;
    let [gone, stays, never] = [(); 3].map(|()| two.kit.project());
    for project in [gone, stays] {
        two.kit.converge(project, Some(site(1))).await;
        two.limit(project, Some(10)).await;
    }
    let remove = async |project| {
        let work = async |tx: &mut store::Connection| {
            embedded(two.kit.store.clone()).removal().remove(tx, project).await?;
            Ok::<_, ConvergenceError>(Outcome::Changed((), deployed(project)))
        };
        two.kit.store.transaction(&operator(), work).await.unwrap();
    };
    remove(gone).await;
    let news = two.kit.desired(node, 5).await;
    assert_eq!(news.revision, 7);
    assert_eq!((sites(&news), parts::<Quota>(&news)), (vec![placed(gone, 7, None)], vec![limited(gone, 6, None)]));
    // Once more, and of a project that no context ever placed: nothing changes.
    remove(gone).await;
    remove(never).await;
    assert_eq!(two.kit.desired(node, 7).await.revision, 7);
    assert_eq!(two.kit.connection().await.placement_home(never).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_project_ends_without_a_node() {
    let two = Two::start().await;
    let project = two.kit.project();
    two.limit(project, Some(10)).await;
    let work = async |tx: &mut store::Connection| {
        embedded(two.kit.store.clone()).removal().remove(tx, project).await?;
        Ok::<_, ConvergenceError>(Outcome::Changed((), deployed(project)))
    };
    two.kit.store.transaction(&operator(), work).await.unwrap();
    let node = two.kit.node("edge").await.node.id;
    assert_eq!(parts::<Quota>(&two.kit.desired(node, 0).await), [limited(project, 2, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_has_one_owner() {
    let kit = Kit::start().await;
    let mut builder = embedded(kit.store.clone());
    let _site: Part<Site> = builder.own().unwrap();
    // Another context cannot obtain the right to write it, under whatever type.
    assert_eq!(builder.own::<Site>().unwrap_err(), AlreadyRegistered::Part("site"));
    #[derive(Serialize, Deserialize)]
    struct Impostor;
    impl DesiredPart for Impostor {
        const NAME: &'static str = "site";
    }
    assert_eq!(builder.own::<Impostor>().unwrap_err(), AlreadyRegistered::Part("site"));
    let _quota: Part<Quota> = builder.own().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_cannot_rewrite_the_part_of_another() {
    let two = Two::start().await;
    let (node, project) = (two.kit.node("edge").await.node.id, two.kit.project());
    two.kit.converge(project, Some(site(1))).await;
    let before = two.kit.db_rows("SELECT * FROM convergence.parts WHERE part = 'site'").await;
    // Every verb that its right has, on the same project.
    two.limit(project, Some(10)).await;
    two.limit(project, None).await;
    two.limit(project, Some(20)).await;
    assert_eq!(two.kit.db_rows("SELECT * FROM convergence.parts WHERE part = 'site'").await, before);
    assert_eq!(sites(&two.kit.desired(node, 0).await), [placed(project, 2, Some(1))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_this_release_does_not_own_is_passed_on() {
    let two = Two::start().await;
    let (node, project) = (two.kit.node("edge").await.node.id, two.kit.project());
    two.limit(project, Some(10)).await;
    let other: Convergence = embedded(two.kit.store.clone()).build();
    let desired = other.desired(node, 0, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(parts::<Quota>(&desired), [limited(project, 2, Some(10))]);
}
