//! A database of its own for each test, a clock that stands, and looks behind the service.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convergence::{
    Convergence, ConvergenceError, Core, DeploymentState, Desired, Embedded, NewNode, Nodes, Platform, Site,
};
use kernel::audit::{Actor, Event};
use kernel::{Digest, NodeId, ProjectId};
use serde_json::json;
use store::{Connection, Outcome};
use testkit::TestStore;

pub struct Kit {
    pub convergence: Convergence,
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
impl convergence::Deployments for Seen {
    async fn observed(
        &self,
        _: &mut Connection,
        project: ProjectId,
        version: i32,
        state: DeploymentState,
        message: Option<&str>,
    ) -> store::Result<()> {
        self.0.lock().unwrap().push((project, version, state, message.map(str::to_owned)));
        Ok(())
    }
}

pub fn platform() -> Platform {
    Platform { dashboard_url: "https://dashboard.example".to_owned(), https: true }
}

impl Kit {
    /// The same service, woken by Postgres.
    pub fn listening(&self) -> Convergence {
        let core: Arc<dyn Core> = Arc::new(Embedded::listening(&self.store));
        Convergence::new(self.store.clone(), Some(core), platform(), self.deployments.clone())
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
        let core: Arc<dyn Core> = Arc::new(Embedded::default());
        let convergence = Convergence::new(store, Some(core), platform(), deployments.clone());
        Self { convergence, nodes, deployments, base }
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
            self.convergence.converge(tx, project, site).await?;
            Ok(Outcome::Changed((), deployed(project)))
        };
        self.store.transaction(&operator(), work).await
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
        access: convergence::SiteAccess::default(),
    }
}

pub fn digest(version: i32) -> Digest {
    Digest::of(&version.to_be_bytes())
}
