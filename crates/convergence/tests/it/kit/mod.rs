//! A database of its own for each test, a clock that stands, and looks behind the service.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convergence::{Builder, Convergence, ConvergenceError, Core, Embedded, NewNode, Nodes, Part, ReportReceiver};
use kernel::audit::{Actor, Event};
use kernel::{NodeId, ProjectId};
use protocol::{
    AccessMode, Change, DeploymentReport, DeploymentState, Desired, DesiredPart, Digest, Platform, Site, SiteAccess,
};
use serde_json::json;
use store::{Connection, Outcome};
use testkit::TestStore;

pub struct Kit {
    pub convergence: Convergence,
    /// The part of the context that deploys.
    pub site: Part<Site>,
    pub nodes: Nodes,
    pub deployments: Arc<Seen>,
    base: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

/// What was noted of deployments, in order.
#[derive(Default)]
pub struct Seen(pub Mutex<Vec<Observed>>);

/// Project, version, state and message.
pub type Observed = (ProjectId, i32, DeploymentState, Option<String>);

#[async_trait::async_trait]
impl ReportReceiver<DeploymentReport> for Seen {
    async fn receive(&self, _: &mut Connection, project: ProjectId, report: DeploymentReport) -> store::Result<()> {
        let DeploymentReport { version, state, message } = report;
        self.0.lock().unwrap().push((project, version, state, message));
        Ok(())
    }
}

/// A part of a project's desired state, read.
#[derive(Debug, PartialEq)]
pub struct Placed<P = Site> {
    pub project: ProjectId,
    pub revision: i64,
    pub part: Option<P>,
}

/// Every part `P` of a node's desired state.
pub fn parts<P: DesiredPart>(desired: &Desired) -> Vec<Placed<P>> {
    let read = |change: &Change| {
        let (project, revision) = (change.project.parse().unwrap(), change.revision);
        change.read::<P>().unwrap().map(|part| Placed { project, revision, part })
    };
    desired.parts.iter().filter_map(read).collect()
}

pub fn sites(desired: &Desired) -> Vec<Placed> {
    parts(desired)
}

/// A service of its own, with an embedded link that wakes nothing.
pub fn embedded(store: store::Store) -> Builder {
    let core: Arc<dyn Core> = Arc::new(Embedded::default());
    Convergence::builder(store, Some(core), platform())
}

pub fn platform() -> Platform {
    Platform { dashboard_url: "https://dashboard.example".to_owned(), https: true }
}

impl Kit {
    /// The same service, woken by Postgres.
    pub fn listening(&self) -> Convergence {
        let core: Arc<dyn Core> = Arc::new(Embedded::listening(&self.store));
        Convergence::builder(self.store.clone(), Some(core), platform()).build()
    }

    pub async fn start() -> Self {
        Self::of(TestStore::start().await)
    }

    /// With so many connections at the most.
    pub async fn with(connections: usize) -> Self {
        Self::of(TestStore::with(connections).await)
    }

    fn of(base: TestStore) -> Self {
        let store = base.store.clone();
        let (nodes, deployments) = (Nodes::new(store.clone()), Arc::<Seen>::default());
        let mut builder = embedded(store);
        let site = builder.own().unwrap();
        builder.receive(deployments.clone()).unwrap();
        Self { convergence: builder.build(), site, nodes, deployments, base }
    }

    pub fn project(&self) -> ProjectId {
        self.store.world().id()
    }

    pub async fn node(&self, name: &str) -> NewNode {
        self.nodes.add(&operator(), name.parse().unwrap()).await.unwrap()
    }

    /// Decides in a transaction of its own what is desired of a project.
    pub async fn converge(&self, project: ProjectId, site: Option<Site>) {
        self.try_converge(project, site).await.unwrap();
    }

    pub async fn try_converge(&self, project: ProjectId, site: Option<Site>) -> Result<(), ConvergenceError> {
        let work = async |tx: &mut Connection| {
            self.decide(tx, project, site).await?;
            Ok(Outcome::Changed((), deployed(project)))
        };
        self.store.transaction(&operator(), work).await
    }

    /// The same inside a transaction.
    pub async fn decide(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        site: Option<Site>,
    ) -> Result<(), ConvergenceError> {
        match site {
            Some(site) => self.site.write(tx, project, &site).await,
            None => self.site.remove(tx, project).await,
        }
    }

    /// What the node is to serve since a revision, without waiting.
    pub async fn desired(&self, node: NodeId, since: i64) -> Desired {
        self.convergence.desired(node, since, Duration::ZERO).await.unwrap()
    }
}

pub fn operator() -> Actor {
    Actor::operator("test")
}

/// What somebody else's transaction tells the audit log.
pub fn deployed(project: ProjectId) -> Event {
    Event { name: "deployment.create", org: None, target: project.to_string(), data: json!({}) }
}

/// A site of this version; its bundle is told apart by the version.
pub fn site(version: i32) -> Site {
    Site {
        hostnames: vec!["shop.example".to_owned(), "www.example.org".to_owned()],
        bundle: digest(version),
        size_bytes: 1000 + i64::from(version),
        version,
        access: SiteAccess { mode: AccessMode::Public, password: None, bypass: None, version: 0 },
    }
}

pub fn digest(version: i32) -> Digest {
    Digest::of(&version.to_be_bytes())
}
