//! The test fixture: the service on a separate database per test.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use convergence::{
    Builder, Convergence, ConvergenceError, Core, EmbeddedCore, NewNode, NodeKind, Nodes, PartWriter, ReportReceiver,
};
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
    /// The writer of the context that owns [`Site`].
    pub site_writer: PartWriter<Site>,
    pub nodes: Nodes,
    pub deployment_reports: Arc<RecordedReports>,
    test_store: TestStore,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.test_store
    }
}

/// A receiver that records deployment reports in order.
#[derive(Default)]
pub struct RecordedReports(pub Mutex<Vec<RecordedReport>>);

/// Project, version, state and message.
pub type RecordedReport = (ProjectId, i32, DeploymentState, Option<String>);

#[async_trait::async_trait]
impl ReportReceiver<DeploymentReport> for RecordedReports {
    async fn receive(&self, _: &mut Connection, project: ProjectId, report: DeploymentReport) -> store::Result<()> {
        let DeploymentReport { version, state, message } = report;
        self.0.lock().unwrap().push((project, version, state, message));
        Ok(())
    }
}

/// A parsed part of a project's desired state.
#[derive(Debug, PartialEq)]
pub struct ProjectPart<P = Site> {
    pub project: ProjectId,
    pub revision: i64,
    pub part: Option<P>,
}

/// Returns all parts `P` in a node's desired state.
pub fn parts<P: DesiredPart>(desired: &Desired) -> Vec<ProjectPart<P>> {
    let read = |change: &Change| {
        let (project, revision) = (change.project.parse().unwrap(), change.revision);
        change.read::<P>().unwrap().map(|part| ProjectPart { project, revision, part })
    };
    desired.parts.iter().filter_map(read).collect()
}

pub fn sites(desired: &Desired) -> Vec<ProjectPart> {
    parts(desired)
}

/// Returns a builder with an embedded link that receives no wake-ups.
pub fn embedded_builder(store: store::Store) -> Builder {
    let core: Arc<dyn Core> = Arc::new(EmbeddedCore::default());
    Convergence::builder(store, Some(core), platform())
}

pub fn platform() -> Platform {
    let [dashboard_url, site_url] = ["https://dashboard.example", "https://{hostname}:8443"].map(str::to_owned);
    Platform { dashboard_url, site_url, certificates: Vec::new() }
}

impl Kit {
    /// Returns the same service with a listener, which wakes its polls.
    pub fn with_listener(&self) -> Convergence {
        let core: Arc<dyn Core> = Arc::new(EmbeddedCore::with_listener(&self.store));
        Convergence::builder(self.store.clone(), Some(core), platform()).build()
    }

    pub async fn start() -> Self {
        Self::from_test_store(TestStore::start().await)
    }

    /// Starts with at most this many connections.
    pub async fn start_with_connections(connections: usize) -> Self {
        Self::from_test_store(TestStore::with(connections).await)
    }

    fn from_test_store(test_store: TestStore) -> Self {
        let store = test_store.store.clone();
        let (nodes, deployment_reports) = (Nodes::new(store.clone()), Arc::<RecordedReports>::default());
        let mut builder = embedded_builder(store);
        let site_writer = builder.register_part().unwrap();
        builder.register_receiver(deployment_reports.clone()).unwrap();
        Self { convergence: builder.build(), site_writer, nodes, deployment_reports, test_store }
    }

    pub fn new_project(&self) -> ProjectId {
        self.store.clock_rng().id()
    }

    pub async fn add_node(&self, name: &str) -> NewNode {
        self.nodes.add(&operator(), name.parse().unwrap(), NodeKind::App).await.unwrap()
    }

    /// Writes or removes the site of a project in a separate transaction.
    pub async fn set_site(&self, project: ProjectId, site: Option<Site>) {
        self.try_set_site(project, site).await.unwrap();
    }

    pub async fn try_set_site(&self, project: ProjectId, site: Option<Site>) -> Result<(), ConvergenceError> {
        let work = async |tx: &mut Connection| {
            self.write_site(tx, project, site).await?;
            Ok(Outcome::Changed((), deploy_event(project)))
        };
        self.store.transaction(&operator(), work).await
    }

    /// Writes or removes the site of a project inside a transaction.
    pub async fn write_site(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        site: Option<Site>,
    ) -> Result<(), ConvergenceError> {
        match site {
            Some(site) => self.site_writer.write(tx, project, &site).await,
            None => self.site_writer.remove(tx, project).await,
        }
    }

    /// Returns the node's desired state since a revision, without waiting.
    pub async fn desired(&self, node: NodeId, since: i64) -> Desired {
        self.convergence.desired(node, since, Duration::ZERO).await.unwrap()
    }
}

pub fn operator() -> Actor {
    Actor::operator("test")
}

/// Returns the audit event of a transaction that writes a site.
pub fn deploy_event(project: ProjectId) -> Event {
    Event::of_platform("deployment.create", project, json!({}))
}

/// Returns a site of this version. Each version has a different bundle.
pub fn site(version: i32) -> Site {
    Site {
        owner: "usr_1".to_owned(),
        hostnames: vec!["shop.example".to_owned(), "www.example.org".to_owned()],
        bundle: digest(version),
        size_bytes: 1000 + i64::from(version),
        version,
        access: SiteAccess { mode: AccessMode::Public, password: None, bypass: None, version: 0 },
        hsts: Vec::new(),
    }
}

pub fn digest(version: i32) -> Digest {
    Digest::of(&version.to_be_bytes())
}
