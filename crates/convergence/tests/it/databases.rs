//! Home nodes with a Postgres, and the states of placements.

use std::sync::{Arc, Mutex};

use convergence::{
    Convergence, ConvergenceError, DatabaseHome, DatabasePlacements, PartWriter, PlacementState, Placements,
    ReportReceiver,
};
use futures_util::future::{join, join_all};
use kernel::audit::Event;
use kernel::{ApiError as _, NodeId, ProjectId};
use protocol::{
    Batch, Database, DatabaseServer, DeploymentReport, DeploymentState, DesiredPart, NodeInfo, Report, SslMode,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{Connection, Outcome};
use testkit::Audit;

use crate::kit::{Kit, deploy_event, embedded_builder, operator, parts, site};

/// The organization and the name of suspended projects.
const PATH: (&str, &str) = ("acme", "site");

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Counter(i64);

impl DesiredPart for Counter {
    const NAME: &'static str = "counter";
}

/// The service with two parts: the part `database`, and another part. Each report about a deployment changes both.
struct Databases {
    kit: Kit,
    convergence: Convergence,
    placements: DatabasePlacements,
    operator: Placements,
    part: PartWriter<Database>,
    counter: PartWriter<Counter>,
}

struct CountingReceiver(Mutex<i64>, PartWriter<Counter>);

#[async_trait::async_trait]
impl ReportReceiver<DeploymentReport> for CountingReceiver {
    async fn receive(&self, tx: &mut Connection, project: ProjectId, _: DeploymentReport) -> store::Result<()> {
        let count = {
            let mut count = self.0.lock().unwrap();
            *count += 1;
            *count
        };
        self.1.write(tx, project, &Counter(count)).await.map_err(store::Error::inconsistent)
    }
}

fn server(host: &str) -> DatabaseServer {
    DatabaseServer { host: host.to_owned(), port: 5432, sslmode: SslMode::VerifyFull, backup_interval_seconds: 3600 }
}

fn database() -> Database {
    Database {
        revision: 1,
        id: "dbs_01m7yhx300fbd828t5cy4tqkff".to_owned(),
        verifier: None,
        tokens: Vec::new(),
        size_bytes: 1,
        backup_days: 1,
        epoch: 1,
        source: None,
        operation: None,
        exports: Vec::new(),
        suspended: false,
    }
}

impl Databases {
    async fn start() -> Self {
        let kit = Kit::start().await;
        let mut builder = embedded_builder(kit.store.clone());
        let (part, counter): (_, PartWriter<Counter>) =
            (builder.register_part().unwrap(), builder.register_part().unwrap());
        let receiver = CountingReceiver(Mutex::new(0), counter.clone());
        builder.register_receiver::<DeploymentReport>(Arc::new(receiver)).unwrap();
        let placements = builder.database_placements();
        let operator = Placements::new(kit.store.clone());
        Self { convergence: builder.build(), kit, placements, operator, part, counter }
    }

    /// Adds a node that announces this Postgres, or none.
    async fn node(&self, name: &str, database: Option<DatabaseServer>) -> NodeId {
        let node = self.kit.add_node(name).await.node.id;
        self.convergence.announce(node, NodeInfo { database }).await.unwrap();
        node
    }

    async fn assign(&self, project: ProjectId) -> DatabaseHome {
        let work = async |tx: &mut Connection| self.placements.assign(tx, project).await;
        self.kit.store.transaction_unaudited(work).await.unwrap()
    }

    async fn enter(&self, project: ProjectId, state: PlacementState) -> Result<(), ConvergenceError> {
        let work = async |tx: &mut Connection| self.placements.enter(tx, project, state).await;
        self.kit.store.transaction_unaudited(work).await
    }

    async fn write_database(&self, project: ProjectId) {
        let work = async |tx: &mut Connection| self.part.write(tx, project, &database()).await;
        self.kit.store.transaction_unaudited(work).await.unwrap();
    }

    /// Returns the home node, the state and the epoch.
    async fn placement(&self, project: ProjectId) -> (Option<String>, String, i64) {
        let query = format!(
            "SELECT n.name, p.state, p.epoch FROM convergence.placements p \
             LEFT JOIN convergence.nodes n ON n.id = p.node_id WHERE p.project_id = '{}'",
            project.as_uuid()
        );
        let Placed { name, state, epoch } = serde_json::from_value(self.kit.db_rows(&query).await.remove(0)).unwrap();
        (name, state, epoch)
    }
}

#[derive(Deserialize)]
struct Placed {
    name: Option<String>,
    state: String,
    epoch: i64,
}

fn placed(node: &str, state: &str, epoch: i64) -> (Option<String>, String, i64) {
    (Some(node.to_owned()), state.to_owned(), epoch)
}

#[tokio::test(flavor = "multi_thread")]
async fn project_with_a_database_gets_a_node_with_a_postgres() {
    let it = Databases::start().await;
    let [none, bare, served, old] = std::array::from_fn(|_| it.kit.new_project());
    assert_eq!(it.assign(none).await, DatabaseHome::NoNode);
    it.node("bare", None).await;
    it.kit.set_site(old, Some(site(1))).await;
    assert_eq!(it.assign(bare).await, DatabaseHome::NoDatabase);
    it.node("full", Some(server("db1.example"))).await;
    for _ in 0..3 {
        it.kit.set_site(it.kit.new_project(), Some(site(1))).await;
    }
    assert_eq!(it.assign(served).await, DatabaseHome::Assigned);
    assert_eq!(it.placement(served).await, placed("full", "active", 1));
    // The home node of a project does not change.
    assert_eq!(it.assign(old).await, DatabaseHome::NoDatabase);
    assert_eq!(it.placement(old).await, placed("bare", "active", 1));
    let deleted = it.kit.new_project();
    it.assign(deleted).await;
    it.kit
        .db_execute(&format!(
            "UPDATE convergence.placements SET ended_at = now() WHERE project_id = '{}'",
            deleted.as_uuid()
        ))
        .await;
    assert_eq!(it.assign(deleted).await, DatabaseHome::Deleted);
}

#[tokio::test(flavor = "multi_thread")]
async fn announcement_replaces_the_one_before() {
    let it = Databases::start().await;
    let node = it.node("edge", Some(server("db1.example"))).await;
    let announced = async || {
        let query =
            "SELECT database_host, database_port, database_sslmode, backup_interval_seconds FROM convergence.nodes";
        it.kit.db_rows(query).await.remove(0)
    };
    let first = json!({
        "database_host": "db1.example", "database_port": 5432, "database_sslmode": "verify-full", "backup_interval_seconds": 3600,
    });
    assert_eq!(announced().await, first);
    it.convergence.announce(node, NodeInfo { database: None }).await.unwrap();
    assert_eq!(announced().await["database_host"], json!(null));
    let unknown = it.convergence.announce(it.kit.store.clock_rng().id(), NodeInfo { database: None }).await;
    assert!(matches!(unknown, Err(ConvergenceError::UnknownNode)), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn states_follow_each_other_and_reactivation_raises_the_epoch() {
    use PlacementState as State;
    let it = Databases::start().await;
    it.node("edge", Some(server("db1.example"))).await;
    let project = it.kit.new_project();
    it.assign(project).await;
    let order = [State::Draining, State::Sealing, State::Committing, State::Reactivating, State::Active];
    for (index, state) in order.into_iter().enumerate() {
        for other in order.into_iter().filter(|other| *other != state && *other != State::Active) {
            let refused = it.enter(project, other).await;
            assert!(matches!(refused, Err(ConvergenceError::PlacementBusy)), "{other} before {state}");
        }
        it.enter(project, state).await.unwrap();
        assert_eq!(it.placement(project).await, placed("edge", state.as_str(), if index < 3 { 1 } else { 2 }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_publishes_the_part_database() {
    let it = Databases::start().await;
    let node = it.node("edge", Some(server("db1.example"))).await;
    let project = it.kit.new_project();
    let missing = it.operator.suspend(&operator(), project, PATH).await.unwrap_err();
    assert_eq!(missing.code(), &kernel::Code::NOT_FOUND);
    it.assign(project).await;
    it.write_database(project).await;
    let since = it.kit.desired(node, 0).await.revision;
    it.kit.audited().await;
    let audit = |name| {
        let event = Event::of_platform(name, project, json!({ "org": "acme", "project": "site" }));
        [Audit::of(&operator(), event)]
    };
    assert!(it.operator.suspend(&operator(), project, PATH).await.unwrap());
    assert_eq!(it.placement(project).await, placed("edge", "suspended", 1));
    assert_eq!(it.kit.audited().await, audit("placement.suspend"));
    let changed = it.convergence.desired(node, since, std::time::Duration::ZERO).await.unwrap();
    assert_eq!(parts::<Database>(&changed).len(), 1);
    assert!(!it.operator.suspend(&operator(), project, PATH).await.unwrap());
    assert!(it.kit.audited().await.is_empty());
    assert!(matches!(it.enter(project, PlacementState::Draining).await, Err(ConvergenceError::PlacementBusy)));
    assert!(it.operator.resume(&operator(), project, PATH).await.unwrap());
    assert_eq!(it.placement(project).await, placed("edge", "active", 1));
    assert_eq!(it.kit.audited().await, audit("placement.resume"));
    assert!(!it.operator.resume(&operator(), project, PATH).await.unwrap());
    it.enter(project, PlacementState::Draining).await.unwrap();
    let busy = it.operator.suspend(&operator(), project, PATH).await.unwrap_err();
    assert!(matches!(busy, ConvergenceError::PlacementBusy), "{busy:?}");
    assert!(!it.operator.resume(&operator(), project, PATH).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn suspension_and_operation_move_with_the_project() {
    let it = Databases::start().await;
    it.node("old", Some(server("db1.example"))).await;
    let [suspended, sealing, plain] = std::array::from_fn(|_| it.kit.new_project());
    for project in [suspended, sealing, plain] {
        it.assign(project).await;
        it.write_database(project).await;
    }
    it.operator.suspend(&operator(), suspended, PATH).await.unwrap();
    it.enter(sealing, PlacementState::Draining).await.unwrap();
    it.enter(sealing, PlacementState::Sealing).await.unwrap();
    it.kit.nodes.revoke(&operator(), &"old".parse().unwrap()).await.unwrap();
    for (project, state) in [(suspended, "suspended"), (sealing, "sealing"), (plain, "pending")] {
        assert_eq!(it.placement(project).await, (None, state.to_owned(), 1));
    }
    it.node("new", Some(server("db2.example"))).await;
    for (project, state) in [(suspended, "suspended"), (sealing, "sealing"), (plain, "active")] {
        assert_eq!(it.placement(project).await, placed("new", state, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn projects_with_a_database_move_to_nodes_with_a_postgres() {
    let it = Databases::start().await;
    it.node("old", Some(server("db1.example"))).await;
    let (with, without) = (it.kit.new_project(), it.kit.new_project());
    for project in [with, without] {
        it.kit.set_site(project, Some(site(1))).await;
    }
    it.write_database(with).await;
    it.node("bare", None).await;
    it.node("full", Some(server("db2.example"))).await;
    it.kit.nodes.revoke(&operator(), &"old".parse().unwrap()).await.unwrap();
    assert_eq!(it.placement(with).await, placed("full", "active", 1));
    assert_eq!(it.placement(without).await.1, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn project_with_a_database_waits_for_the_announcement_of_a_postgres() {
    let it = Databases::start().await;
    it.node("old", Some(server("db1.example"))).await;
    let (with, without) = (it.kit.new_project(), it.kit.new_project());
    it.write_database(with).await;
    it.kit.set_site(without, Some(site(1))).await;
    // A node without a Postgres gets only the other project.
    it.node("bare", None).await;
    it.kit.nodes.revoke(&operator(), &"old".parse().unwrap()).await.unwrap();
    let pending = (None, "pending".to_owned(), 1);
    assert_eq!(it.placement(without).await, placed("bare", "active", 1));
    assert_eq!(it.placement(with).await, pending);
    // The project stays pending: neither the registration of a node, nor its relist, nor another part of the project
    // assigns a node.
    let new = it.kit.add_node("new").await.node.id;
    assert!(parts::<Database>(&it.kit.desired(new, 0).await).is_empty());
    it.kit.set_site(with, Some(site(1))).await;
    assert_eq!(it.placement(with).await, pending);
    it.convergence.announce(new, NodeInfo { database: None }).await.unwrap();
    assert_eq!(it.placement(with).await, pending);
    it.convergence.announce(new, NodeInfo { database: Some(server("db2.example")) }).await.unwrap();
    assert_eq!(it.placement(with).await, placed("new", "active", 1));
    assert_eq!(parts::<Database>(&it.kit.desired(new, 0).await).len(), 1);
    assert_eq!(it.assign(with).await, DatabaseHome::Assigned);
}

#[tokio::test(flavor = "multi_thread")]
async fn receiver_that_writes_parts_does_not_deadlock_with_writers() {
    let it = Databases::start().await;
    let node = it.node("edge", None).await;
    let projects: Vec<ProjectId> = (0..6).map(|_| it.kit.new_project()).collect();
    for project in &projects {
        it.kit.set_site(*project, Some(site(1))).await;
    }
    let report = |project: &ProjectId| {
        let report = DeploymentReport { version: 1, state: DeploymentState::Serving, message: None };
        Report::new(project.to_string(), &report).unwrap()
    };
    let reports = async {
        for batch in 1..=20 {
            // Report in another order than that of the locks.
            let reports = projects.iter().rev().map(report).collect();
            it.convergence.report(node, Batch { batch, reports }).await.unwrap();
        }
    };
    let writes = join_all(projects.iter().map(|project| async {
        for number in 0..20 {
            let work = async |tx: &mut Connection| {
                it.counter.write(tx, *project, &Counter(-number)).await?;
                Ok::<_, ConvergenceError>(Outcome::Changed((), deploy_event(*project)))
            };
            it.kit.store.transaction(&operator(), work).await.unwrap();
        }
    }));
    join(reports, writes).await;
    assert_eq!(parts::<Counter>(&it.convergence.desired(node, 0, std::time::Duration::ZERO).await.unwrap()).len(), 6);
}
