//! A database of its own for each test, a clock that stands, and looks behind the service.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use convergence::{
    Convergence, ConvergenceError, Core, DeploymentState, Desired, Embedded, NewNode, Nodes, Platform, Site,
};
use diesel::QueryableByName;
use diesel::sql_types::{Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::audit::{Actor, Event};
use kernel::{Digest, NodeId, OrgId, ProjectId, Secret, UserId};
use serde_json::{Value, json};
use store::testing::{TestClock, TestDatabase};
use store::{Connection, Lease, Outcome, Store};

pub struct Kit {
    pub convergence: Convergence,
    pub nodes: Nodes,
    pub deployments: Arc<Seen>,
    pub store: Store,
    clock: TestClock,
    pub database: TestDatabase,
}

/// A row of the audit log, without its id and time.
#[derive(Debug, PartialEq, QueryableByName)]
pub struct Audit {
    #[diesel(sql_type = Text)]
    pub event: String,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    pub actor_id: Option<UserId>,
    #[diesel(sql_type = Text)]
    pub credential: String,
    #[diesel(sql_type = Text)]
    pub target: String,
    #[diesel(sql_type = Jsonb)]
    pub data: Value,
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
        // Nobody of a race waits for a connection: what is raced for is a row.
        Self::with(32).await
    }

    /// With so many connections at the most.
    pub async fn with(connections: usize) -> Self {
        let (database, clock) = (TestDatabase::create().await, TestClock::default());
        let mut config = store::Config::new(Secret::new(database.url()), "test");
        config.connections = connections;
        let store = Store::new(&config, clock.world()).unwrap();
        let (nodes, deployments) = (Nodes::new(store.clone()), Arc::<Seen>::default());
        let core: Arc<dyn Core> = Arc::new(Embedded::default());
        let convergence = Convergence::new(store.clone(), Some(core), platform(), deployments.clone());
        Self { convergence, nodes, deployments, store, clock, database }
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

    /// What the audit log tells of the present moment, which is over then: the next look tells of what came after.
    pub async fn audited(&self) -> Vec<Audit> {
        let query = diesel::sql_query("SELECT * FROM store.audit WHERE created_at = $1 ORDER BY event, id");
        let now = self.store.world().now();
        self.clock.pass(1);
        query.bind::<Timestamptz, _>(now).load(&mut self.connection().await).await.unwrap()
    }

    /// The one number that a statement answers.
    pub async fn db_number(&self, statement: &str) -> i64 {
        self.database.number(statement).await
    }

    pub async fn db_execute(&self, statement: &str) {
        self.database.run(statement).await;
    }

    pub async fn connection(&self) -> Lease {
        self.store.connection().await.unwrap()
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
