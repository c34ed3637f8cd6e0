//! The test fixture: the service on a separate database per test, a home node with a Postgres, and its reports.

use std::ops::Deref;
use std::sync::Arc;

use databases::{
    DatabaseConnect, DatabaseError, DatabasePart, Databases, Generation, GenerationKind, GenerationRecord,
    NewDatabaseToken, Observation, Operation, PartValues, Phase, Ports, Progress, RestoreRequest, Target,
};
use kernel::audit::Actor;
use kernel::{DatabaseId, Limits, NamedProject, NodeId, OperationId, OrgId, Plan, ProjectId, Time, UserId};
use serde_json::json;
use store::Connection;
use testkit::{TestStore, session_actor};

use crate::ports::{Node, Notices, SqlGrants, SqlPlacements};

pub struct Kit {
    pub databases: Databases,
    pub values: PartValues,
    pub node: Node,
    pub notices: Notices,
    pub actor: Actor,
    pub home: NodeId,
    org: OrgId,
    base: TestStore,
}

#[derive(serde::Deserialize)]
struct Placed {
    state: String,
    epoch: i64,
}

impl Deref for Kit {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.base
    }
}

impl Kit {
    pub async fn start() -> Self {
        Self::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Self {
        let base = TestStore::start().await;
        let (org, home): (OrgId, NodeId) = (base.store.clock_rng().id(), base.store.clock_rng().id());
        base.db_execute(&format!(
            "INSERT INTO orgs.orgs (id, slug, name, plan, personal, created_at) \
             VALUES ('{}', 'acme', 'Acme', 'free', false, now())",
            org.as_uuid()
        ))
        .await;
        base.db_execute(&format!(
            "INSERT INTO convergence.nodes (id, name, token_hash, created_at, database_host, database_port, \
                 database_sslmode, backup_interval_seconds) \
             VALUES ('{}', 'n1', 'x', now(), 'db1.example', 5432, 'require', 3600)",
            home.as_uuid()
        ))
        .await;
        let (node, notices) = (Node::default(), Notices::default());
        let ports = Ports {
            placements: Arc::new(SqlPlacements),
            part: Arc::new(node.clone()),
            organizations: Arc::new(notices.clone()),
            grants: Arc::new(SqlGrants),
        };
        let databases = Databases::new(base.store.clone(), limits, ports);
        let values = PartValues::new(base.store.clone());
        let actor = session_actor(base.store.clock_rng().id());
        Self { databases, values, node, notices, actor, home, org, base }
    }

    /// Inserts a project with this name, placed on the home node.
    pub async fn db_project(&self, name: &str) -> Target {
        let project: ProjectId = self.store.clock_rng().id();
        let (id, org, home) = (project.as_uuid(), self.org.as_uuid(), self.home.as_uuid());
        self.db_execute(&format!(
            "INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
             VALUES ('{id}', '{org}', '{name}', 'public', 0, now())"
        ))
        .await;
        self.db_execute(&format!(
            "INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
             VALUES ('{id}', '{home}', 'active', 1, now())"
        ))
        .await;
        Target { org: self.org, plan: Plan::Free, project }
    }

    /// Inserts a project and enables its database.
    pub async fn database(&self, name: &str) -> (Target, DatabaseId) {
        let at = self.db_project(name).await;
        self.enable(at).await;
        let id = self.part(at).await.unwrap().id;
        self.node.take_updates();
        self.audited().await;
        (at, id)
    }

    /// Inserts this many projects with databases, placed on the home node.
    pub async fn db_insert_databases(&self, number: u32) {
        let (org, home, now) = (self.org.as_uuid(), self.home.as_uuid(), self.now());
        self.db_execute(&format!(
            "CREATE TEMP TABLE inserted AS SELECT gen_random_uuid() AS id, n FROM generate_series(1, {number}) n; \
             INSERT INTO projects.projects (id, org_id, name, access_mode, last_version, created_at) \
                 SELECT id, '{org}', 'p' || n, 'public', 0, now() FROM inserted; \
             INSERT INTO convergence.placements (project_id, node_id, state, epoch, created_at) \
                 SELECT id, '{home}', 'active', 1, now() FROM inserted; \
             INSERT INTO databases.sequences (project_id, revision) SELECT id, 1 FROM inserted; \
             INSERT INTO databases.databases (id, project_id, created_at, key_id, sealed, verifier) \
                 SELECT id, id, '{now}', 'k', '', 'v' FROM inserted; \
             DROP TABLE inserted"
        ))
        .await;
    }

    /// Soft-deletes a project.
    pub async fn db_delete(&self, target: Target) {
        let project = target.project.as_uuid();
        self.db_execute(&format!("UPDATE projects.projects SET deleted_at = now() WHERE id = '{project}'")).await;
        let end = format!("UPDATE convergence.placements SET ended_at = now() WHERE project_id = '{project}'");
        self.db_execute(&end).await;
    }

    /// Changes the placement of a project.
    pub async fn db_place(&self, target: Target, change: &str) {
        let project = target.project.as_uuid();
        self.db_execute(&format!("UPDATE convergence.placements SET {change} WHERE project_id = '{project}'")).await;
    }

    /// Returns the state and the epoch of the project's placement.
    pub async fn placement(&self, target: Target) -> (String, i64) {
        let select = format!(
            "SELECT state, epoch FROM convergence.placements WHERE project_id = '{}'",
            target.project.as_uuid()
        );
        let Placed { state, epoch } = serde_json::from_value(self.db_rows(&select).await.remove(0)).unwrap();
        (state, epoch)
    }

    pub fn user(&self) -> UserId {
        self.actor.user.unwrap()
    }

    pub async fn enable(&self, at: Target) -> DatabaseConnect {
        self.databases.enable(&self.actor, at).await.unwrap()
    }

    pub async fn token(&self, at: Target, seconds: Option<i64>) -> Result<databases::DatabaseToken, DatabaseError> {
        let new: NewDatabaseToken = serde_json::from_value(json!({ "expiresInSeconds": seconds })).unwrap();
        self.databases.token_create(&self.actor, at, self.user(), new).await
    }

    /// Returns the part of a project, as the node receives it.
    pub async fn part(&self, at: Target) -> Option<DatabasePart> {
        self.values.load(&mut *self.connection().await, &[at.project]).await.unwrap().remove(&at.project)
    }

    /// Runs `work` like the transaction that accepts a batch of reports: it holds the lock of the placement.
    pub async fn receive(&self, at: Target, work: impl AsyncFnOnce(&mut Connection) -> store::Result<()>) {
        let locked = async |tx: &mut Connection| {
            use diesel_async::RunQueryDsl as _;
            let lock =
                format!("SELECT FROM convergence.placements WHERE project_id = '{}' FOR UPDATE", at.project.as_uuid());
            diesel::sql_query(lock).execute(tx).await?;
            work(tx).await
        };
        self.store.transaction_unaudited(locked).await.unwrap();
    }

    /// Receives a report of the home node.
    pub async fn observe(&self, at: Target, observed: Observation, progress: Option<Progress>) {
        self.receive(at, async |tx| self.databases.observe(tx, at.project, observed, progress).await).await;
    }

    /// Receives progress from a node that has applied the current part.
    pub async fn report(&self, at: Target, progress: Progress) {
        let part = self.part(at).await.unwrap();
        self.observe(at, observation(part.id, part.revision), Some(progress)).await;
    }

    /// Completes the current phase of an operation, which must be `phase`.
    pub async fn complete(&self, at: Target, operation: OperationId, phase: Phase) {
        let generation = match (phase, self.operation(at, operation).await.kind) {
            (Phase::Sealing, databases::OperationKind::Delete) => Some(GenerationKind::Final),
            (Phase::Sealing, _) => Some(GenerationKind::PreRestore),
            _ => None,
        };
        let generation = match generation {
            Some(kind) => Some(self.generation(at, kind).await),
            None => None,
        };
        self.report(at, Progress::Completed { operation, phase, generation }).await;
    }

    /// Creates a generation of the current database with a new key.
    pub async fn generation(&self, at: Target, kind: GenerationKind) -> GenerationRecord {
        let part = self.part(at).await.unwrap();
        let key = format!("{}/{}.dump", at.project, self.store.clock_rng().id::<OperationId>());
        record(part.id, &key, part.epoch, kind, self.now())
    }

    /// Receives a generation report.
    pub async fn receive_generation(&self, at: Target, generation: GenerationRecord) {
        self.receive(at, async |tx| self.databases.generation_report(tx, at.project, generation).await).await;
    }

    /// Receives a scheduled generation, and returns it as listed.
    pub async fn scheduled(&self, at: Target) -> Generation {
        self.advance(1);
        let generation = self.generation(at, GenerationKind::Scheduled).await;
        self.receive_generation(at, generation).await;
        self.generations(at).await.remove(0)
    }

    pub async fn generations(&self, at: Target) -> Vec<Generation> {
        self.databases.generations(at.project).await.unwrap().items
    }

    pub async fn restore(&self, at: Target, generation: &Generation) -> Result<OperationId, DatabaseError> {
        let request = RestoreRequest { epoch: generation.epoch, seq: generation.seq };
        Ok(self.databases.restore(&self.actor, at, request).await?.operation_id)
    }

    /// Deletes the database with the name of the project as the confirmation.
    pub async fn delete(&self, at: Target) -> Result<OperationId, DatabaseError> {
        let request = serde_json::from_value(json!({ "confirm": "shop" })).unwrap();
        Ok(self.databases.delete(&self.actor, at, "shop", request).await?.operation_id)
    }

    pub async fn operation(&self, at: Target, operation: OperationId) -> Operation {
        self.databases.operation(at.project, operation).await.unwrap()
    }
}

/// Creates an observation of a database without problems.
pub fn observation(database: DatabaseId, revision: i64) -> Observation {
    Observation {
        database,
        revision,
        ready: true,
        size_bytes: 7_500_000,
        read_only: false,
        fresh_at: None,
        checked_at: None,
        backup_error: None,
        recovered_from: None,
    }
}

pub fn record(database: DatabaseId, key: &str, epoch: i64, kind: GenerationKind, created_at: Time) -> GenerationRecord {
    let sha256 = kernel::hex(&[7; 32]);
    GenerationRecord { database, key: key.to_owned(), epoch, kind, size_bytes: 1000, sha256, created_at }
}

/// Returns the code of the error.
pub fn code<T: std::fmt::Debug>(result: Result<T, DatabaseError>) -> &'static str {
    kernel::ApiError::code(&result.unwrap_err()).name
}

/// Returns the project `shop` of a notification.
pub fn shop(at: Target) -> NamedProject {
    NamedProject { id: at.project, name: "shop".to_owned() }
}
