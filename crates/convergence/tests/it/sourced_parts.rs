//! Parts whose values stay with their owner, and are loaded when a node polls.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convergence::{AlreadyRegistered, Convergence, ConvergenceError, PartSource, SourcedPartWriter};
use kernel::{NodeId, ProjectId};
use protocol::{Desired, DesiredPart, UnavailablePart};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Connection, Error, Outcome};

use crate::kit::{Kit, ProjectPart, deploy_event, embedded_builder, operator, parts, site, sites};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Words(String);

impl DesiredPart for Words {
    const NAME: &'static str = "words";
}

/// The owner of the part. It records the projects of each query, and cannot read the value [`UNREADABLE`].
#[derive(Default)]
struct Owner {
    values: Mutex<BTreeMap<ProjectId, String>>,
    queries: Mutex<Vec<Vec<ProjectId>>>,
}

const UNREADABLE: &str = "unreadable";

#[async_trait::async_trait]
impl PartSource<Words> for Owner {
    fn max_batch(&self) -> usize {
        4
    }

    async fn load(
        &self,
        _: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Words>>> {
        self.queries.lock().unwrap().push(projects.to_vec());
        let values = self.values.lock().unwrap();
        let read = |value: &String| {
            if value == UNREADABLE { Err(Error::inconsistent("corrupt")) } else { Ok(Words(value.clone())) }
        };
        Ok(projects.iter().filter_map(|project| Some((*project, read(values.get(project)?)))).collect())
    }
}

/// A part with small values.
#[derive(Debug, Serialize, Deserialize)]
struct Number(usize);

impl DesiredPart for Number {
    const NAME: &'static str = "number";
}

/// The owner of the part. It records the number of projects of each query.
#[derive(Default)]
struct Numbers(Mutex<Vec<usize>>);

#[async_trait::async_trait]
impl PartSource<Number> for Numbers {
    async fn load(
        &self,
        _: &mut Connection,
        projects: &[ProjectId],
    ) -> store::Result<BTreeMap<ProjectId, store::Result<Number>>> {
        self.0.lock().unwrap().push(projects.len());
        Ok(projects.iter().map(|project| (*project, Ok(Number(projects.len())))).collect())
    }
}

struct Sourced {
    kit: Kit,
    convergence: Convergence,
    owner: Arc<Owner>,
    writer: SourcedPartWriter<Words>,
    numbers: Arc<Numbers>,
    number_writer: SourcedPartWriter<Number>,
}

impl Sourced {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let (owner, numbers) = (Arc::<Owner>::default(), Arc::<Numbers>::default());
        let mut builder = embedded_builder(kit.store.clone());
        let writer = builder.register_sourced_part(owner.clone()).unwrap();
        let number_writer = builder.register_sourced_part(numbers.clone()).unwrap();
        Self { convergence: builder.build(), kit, owner, writer, numbers, number_writer }
    }

    /// Changes or removes the value, and writes the part.
    async fn set(&self, project: ProjectId, value: Option<&str>) -> Result<(), ConvergenceError> {
        let work = async |tx: &mut Connection| {
            match value {
                Some(value) => {
                    self.owner.values.lock().unwrap().insert(project, value.to_owned());
                    self.writer.write(tx, project).await?;
                }
                None => self.writer.remove(tx, project).await?,
            }
            Ok(Outcome::Changed((), deploy_event(project)))
        };
        self.kit.store.transaction(&operator(), work).await
    }

    /// Writes a number and words of new projects.
    async fn set_both(&self, projects: usize, words: &str) {
        for _ in 0..projects {
            let project = self.kit.new_project();
            let work = async |tx: &mut Connection| {
                self.number_writer.write(tx, project).await?;
                Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(project)))
            };
            self.kit.store.transaction(&operator(), work).await.unwrap();
            self.set(project, Some(words)).await.unwrap();
        }
    }

    async fn desired(&self, node: NodeId, since: i64) -> Desired {
        self.convergence.desired(node, since, Duration::ZERO).await.unwrap()
    }

    fn take_queries(&self) -> Vec<Vec<ProjectId>> {
        std::mem::take(&mut self.owner.queries.lock().unwrap())
    }
}

fn words(project: ProjectId, revision: i64, value: Option<&str>) -> ProjectPart<Words> {
    ProjectPart { project, revision, part: value.map(|value| Words(value.to_owned())) }
}

#[tokio::test(flavor = "multi_thread")]
async fn node_receives_values_that_are_not_stored() {
    let sourced = Sourced::start().await;
    let (node, project) = (sourced.kit.add_node("edge").await.node.id, sourced.kit.new_project());
    sourced.set(project, Some("hush")).await.unwrap();
    assert_eq!(parts(&sourced.desired(node, 0).await), [words(project, 2, Some("hush"))]);
    sourced.set(project, Some("hush hush")).await.unwrap();
    assert_eq!(parts(&sourced.desired(node, 2).await), [words(project, 3, Some("hush hush"))]);
    let stored = sourced.kit.db_rows("SELECT part, desired FROM convergence.parts").await;
    assert_eq!(stored, [json!({ "part": "words", "desired": {} })]);
    sourced.set(project, None).await.unwrap();
    assert_eq!(parts(&sourced.desired(node, 3).await), [words(project, 4, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_response_are_loaded_in_one_query() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    // As many as one query loads.
    let projects: Vec<ProjectId> = (0..4).map(|_| sourced.kit.new_project()).collect();
    for project in &projects {
        sourced.kit.set_site(*project, Some(site(1))).await;
        sourced.set(*project, Some("value")).await.unwrap();
    }
    let desired = sourced.desired(node, 0).await;
    assert_eq!((parts::<Words>(&desired).len(), sites(&desired).len()), (4, 4));
    assert_eq!(sourced.take_queries(), std::slice::from_ref(&projects));
    // Only changed parts are loaded, and neither a removed part nor a response without the part needs a query.
    let last = desired.revision;
    sourced.set(projects[0], Some("new")).await.unwrap();
    sourced.set(projects[1], None).await.unwrap();
    sourced.kit.set_site(projects[2], Some(site(2))).await;
    assert_eq!(sourced.desired(node, last).await.parts.len(), 3);
    assert_eq!(sourced.take_queries(), [vec![projects[0]]]);
    sourced.desired(node, last + 1).await;
    sourced.desired(node, last + 3).await;
    assert_eq!(sourced.take_queries(), Vec::<Vec<_>>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn values_of_a_large_response_are_loaded_in_batches() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    let projects: Vec<ProjectId> = (0..120).map(|_| sourced.kit.new_project()).collect();
    for project in &projects {
        sourced.set(*project, Some("value")).await.unwrap();
    }
    let received = parts::<Words>(&sourced.desired(node, 0).await);
    assert!(received.iter().map(|part| part.project).eq(projects.iter().copied()));
    assert!(received.iter().all(|part| part.part == Some(Words("value".to_owned()))));
    let queries = sourced.take_queries();
    assert!(queries.iter().all(|query| query.len() <= 4), "{queries:?}");
    assert_eq!(queries.concat(), projects);
}

#[tokio::test(flavor = "multi_thread")]
async fn small_values_are_loaded_in_larger_batches() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    sourced.set_both(60, "value").await;
    assert_eq!(sourced.desired(node, 0).await.parts.len(), 120);
    assert_eq!(*sourced.numbers.0.lock().unwrap(), [50, 10]);
    assert!(sourced.take_queries().iter().all(|query| query.len() <= 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_that_ends_within_a_batch_contains_all_parts_up_to_its_revision() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    sourced.set_both(20, &"x".repeat(1024 * 1024)).await;
    let (mut revisions, mut pages, mut page) = (Vec::new(), 0, sourced.desired(node, 0).await);
    loop {
        revisions.extend(page.parts.iter().map(|part| part.revision));
        assert_eq!(revisions.last(), Some(&page.revision));
        assert!(page.parts.len() <= 24, "{} parts", page.parts.len());
        pages += 1;
        if !page.has_more {
            break;
        }
        page = sourced.desired(node, page.revision).await;
    }
    assert!(pages > 1 && revisions.iter().copied().eq(2..=41), "{revisions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_a_large_state_contain_changes_between_them() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    let large = "x".repeat(1024 * 1024);
    let projects: Vec<ProjectId> = (0..36).map(|_| sourced.kit.new_project()).collect();
    for project in &projects {
        sourced.set(*project, Some(&large)).await.unwrap();
    }
    let first = sourced.desired(node, 0).await;
    // The values of the last query exceed the 8 MiB.
    assert!(first.full && first.has_more && first.parts.len() <= 12, "{} parts", first.parts.len());
    assert_eq!(Some(first.revision), first.parts.last().map(|part| part.revision));
    // These changes affect a project of the first page, one of a later page, and a new one.
    let new = sourced.kit.new_project();
    sourced.set(projects[0], Some("changed")).await.unwrap();
    sourced.set(projects[35], None).await.unwrap();
    sourced.set(new, Some("new")).await.unwrap();
    let (mut received, mut page) = (BTreeMap::new(), first);
    loop {
        let words = parts::<Words>(&page).into_iter().map(|part| (part.project, part.part));
        received.extend(words.map(|(project, words)| (project, words.map(|Words(text)| text))));
        if !page.has_more {
            break;
        }
        let next = sourced.desired(node, page.revision).await;
        assert!(!next.full && next.revision > page.revision);
        page = next;
    }
    let unchanged = projects[1..35].iter().map(|project| (*project, Some(large.clone())));
    let mut expected: BTreeMap<_, _> = unchanged.collect();
    expected.extend([(projects[0], Some("changed".to_owned())), (projects[35], None), (new, Some("new".to_owned()))]);
    assert!(received == expected);
    assert_eq!((page.revision, sourced.desired(node, page.revision).await.parts), (40, vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_value_is_listed_and_blocks_no_other_part() {
    let sourced = Sourced::start().await;
    let node = sourced.kit.add_node("edge").await.node.id;
    let [broken, whole] = [(); 2].map(|()| sourced.kit.new_project());
    sourced.kit.set_site(broken, Some(site(1))).await;
    sourced.set(broken, Some(UNREADABLE)).await.unwrap();
    sourced.set(whole, Some("value")).await.unwrap();
    for since in [0, 1] {
        let desired = sourced.desired(node, since).await;
        assert_eq!((desired.revision, desired.full), (4, since == 0));
        let unavailable = UnavailablePart { project: broken.to_string(), part: "words".to_owned() };
        assert_eq!(desired.unavailable, [unavailable]);
        assert_eq!(parts(&desired), [words(whole, 4, Some("value"))]);
        assert_eq!(sites(&desired).len(), 1);
    }
    // The next relist returns a value that can be read again.
    sourced.owner.values.lock().unwrap().insert(broken, "restored".to_owned());
    let desired = sourced.desired(node, 0).await;
    assert_eq!(parts(&desired), [words(broken, 3, Some("restored")), words(whole, 4, Some("value"))]);
    assert_eq!(desired.unavailable, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_disappears_before_it_is_loaded_is_not_desired() {
    let sourced = Sourced::start().await;
    let (node, project) = (sourced.kit.add_node("edge").await.node.id, sourced.kit.new_project());
    sourced.set(project, Some("value")).await.unwrap();
    sourced.owner.values.lock().unwrap().clear();
    assert_eq!(parts(&sourced.desired(node, 0).await), [words(project, 2, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sourced_part_of_deleted_project_is_refused() {
    let sourced = Sourced::start().await;
    let (node, project) = (sourced.kit.add_node("edge").await.node.id, sourced.kit.new_project());
    sourced.set(project, Some("value")).await.unwrap();
    let work = async |tx: &mut Connection| {
        embedded_builder(sourced.kit.store.clone()).project_remover().remove(tx, project).await?;
        Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(project)))
    };
    sourced.kit.store.transaction(&operator(), work).await.unwrap();
    let refused = sourced.set(project, Some("later")).await;
    assert!(matches!(refused, Err(ConvergenceError::ProjectDeleted)), "{refused:?}");
    assert_eq!(parts(&sourced.desired(node, 0).await), [words(project, 3, None)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn part_is_either_stored_or_sourced() {
    let kit = Kit::start().await;
    let mut builder = embedded_builder(kit.store.clone());
    let _words: SourcedPartWriter<Words> = builder.register_sourced_part(Arc::<Owner>::default()).unwrap();
    assert_eq!(builder.register_part::<Words>().unwrap_err(), AlreadyRegistered::Part("words"));
    let again = builder.register_sourced_part::<Words>(Arc::<Owner>::default());
    assert_eq!(again.map(drop).unwrap_err(), AlreadyRegistered::Part("words"));
}
