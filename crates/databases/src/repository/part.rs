//! The part of the desired state. One statement reads it, so that its revision matches its content.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{DatabaseId, DatabaseTokenId, ExportId, OperationId, Plan, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::model::{OperationKind, Phase};

/// The desired state of a project's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePart {
    pub revision: i64,
    pub id: DatabaseId,
    /// The verifier of the project's login. `None` after the database is deleted.
    pub verifier: Option<Verifier>,
    /// The valid tokens.
    pub tokens: Vec<Login>,
    pub plan: Plan,
    /// The plan that determines how long scheduled generations are kept.
    pub retention_plan: Plan,
    pub epoch: i64,
    pub suspended: bool,
    /// The generation from which the node creates the database if it does not exist on the node.
    pub source: Option<StoredObject>,
    pub operation: Option<PartOperation>,
    /// The pending exports.
    pub exports: Vec<ExportId>,
}

/// A login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    pub user: DatabaseTokenId,
    pub verifier: Verifier,
    pub expires_at: Option<Time>,
}

/// A SCRAM-SHA-256 verifier. Its `Debug` implementation does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier(pub String);

/// A stored generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredObject {
    pub key: String,
    pub size_bytes: i64,
    pub sha256: String,
}

/// The running operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOperation {
    pub id: OperationId,
    pub kind: OperationKind,
    pub phase: Phase,
    /// The generation to restore.
    pub generation: Option<StoredObject>,
}

/// The part of the desired state on a [`store::Connection`].
pub trait PartRepository {
    /// Returns the part of each of these projects that has one.
    async fn part_load(&mut self, projects: &[ProjectId], now: Time) -> Result<Vec<(ProjectId, DatabasePart)>>;
}

const LOAD: &str = "\
    SELECT n.project_id, n.revision, coalesce(d.id, o.database_id) AS id, d.verifier, p.plan, p.pro_retention_until, h.epoch, \
        h.state = 'suspended' AS suspended, \
        ARRAY(SELECT t.id FROM valid t WHERE t.database_id = d.id ORDER BY t.id) AS users, \
        ARRAY(SELECT t.verifier FROM valid t WHERE t.database_id = d.id ORDER BY t.id) AS verifiers, \
        ARRAY(SELECT t.expires_at FROM valid t WHERE t.database_id = d.id ORDER BY t.id) AS expiries, \
        ARRAY(SELECT e.id FROM databases.exports e WHERE e.project_id = n.project_id \
            AND e.ended_at IS NULL AND e.started_at > $2 - interval '10 minutes') AS exports, \
        o.id AS operation, o.kind, o.phase, \
        og.key AS restored_key, og.size_bytes AS restored_bytes, og.sha256 AS restored_sha256, \
        sg.key AS source_key, sg.size_bytes AS source_bytes, sg.sha256 AS source_sha256 \
    FROM databases.sequences n \
    JOIN databases.homes h ON h.project_id = n.project_id \
    JOIN databases.project_plans p ON p.id = n.project_id \
    LEFT JOIN databases.databases d ON d.project_id = n.project_id \
    LEFT JOIN databases.operations o ON o.project_id = n.project_id AND o.ended_at IS NULL \
    LEFT JOIN databases.generations og ON og.project_id = o.project_id AND og.seq = o.seq \
    LEFT JOIN databases.sources s ON s.project_id = n.project_id \
    LEFT JOIN databases.generations sg ON sg.project_id = s.project_id AND sg.key = s.source_key \
    WHERE n.project_id = ANY ($1) AND (d.id IS NOT NULL OR o.id IS NOT NULL)";

const VALID_TOKENS: &str = "WITH valid AS NOT MATERIALIZED (SELECT * FROM databases.tokens \
    WHERE revoked_revision IS NULL AND (expires_at IS NULL OR expires_at > $2)) ";

#[derive(QueryableByName)]
struct PartRow {
    #[diesel(sql_type = Uuid)]
    project_id: ProjectId,
    #[diesel(sql_type = BigInt)]
    revision: i64,
    #[diesel(sql_type = Uuid)]
    id: DatabaseId,
    #[diesel(sql_type = Nullable<Text>)]
    verifier: Option<String>,
    #[diesel(sql_type = Text)]
    plan: Plan,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pro_retention_until: Option<Time>,
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = Bool)]
    suspended: bool,
    #[diesel(sql_type = Array<Uuid>)]
    users: Vec<DatabaseTokenId>,
    #[diesel(sql_type = Array<Text>)]
    verifiers: Vec<String>,
    #[diesel(sql_type = Array<Nullable<Timestamptz>>)]
    expiries: Vec<Option<Time>>,
    #[diesel(sql_type = Array<Uuid>)]
    exports: Vec<ExportId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    operation: Option<OperationId>,
    #[diesel(sql_type = Nullable<Text>)]
    kind: Option<OperationKind>,
    #[diesel(sql_type = Nullable<Text>)]
    phase: Option<Phase>,
    #[diesel(sql_type = Nullable<Text>)]
    restored_key: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    restored_bytes: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    restored_sha256: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    source_key: Option<String>,
    #[diesel(sql_type = Nullable<BigInt>)]
    source_bytes: Option<i64>,
    #[diesel(sql_type = Nullable<Text>)]
    source_sha256: Option<String>,
}

impl PartRepository for Connection {
    async fn part_load(&mut self, projects: &[ProjectId], now: Time) -> Result<Vec<(ProjectId, DatabasePart)>> {
        let query = diesel::sql_query(format!("{VALID_TOKENS}{LOAD}"))
            .bind::<Array<Uuid>, _>(projects)
            .bind::<Timestamptz, _>(now);
        let rows: Vec<PartRow> = Prepared(query).load(self).await?;
        Ok(rows.into_iter().map(|row| (row.project_id, row.into_part(now))).collect())
    }
}

impl PartRow {
    fn into_part(self, now: Time) -> DatabasePart {
        let logins = self.users.into_iter().zip(self.verifiers).zip(self.expiries);
        let login = |((user, verifier), expires_at)| Login { user, verifier: Verifier(verifier), expires_at };
        let generation = object(self.restored_key, self.restored_bytes, self.restored_sha256);
        let operation = self.operation.zip(self.kind).zip(self.phase);
        DatabasePart {
            revision: self.revision,
            id: self.id,
            verifier: self.verifier.map(Verifier),
            tokens: logins.map(login).collect(),
            plan: self.plan,
            retention_plan: self.plan.for_retention(self.pro_retention_until, now),
            epoch: self.epoch,
            suspended: self.suspended,
            source: object(self.source_key, self.source_bytes, self.source_sha256),
            operation: operation.map(|((id, kind), phase)| PartOperation { id, kind, phase, generation }),
            exports: self.exports,
        }
    }
}

fn object(key: Option<String>, size_bytes: Option<i64>, sha256: Option<String>) -> Option<StoredObject> {
    let ((key, size_bytes), sha256) = key.zip(size_bytes).zip(sha256)?;
    Some(StoredObject { key, size_bytes, sha256 })
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(…)")
    }
}
