//! The observed state of databases.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{DatabaseId, OrgId, ProjectId, Time};
use store::{BATCH_SIZE, Connection, Prepared, Result};

use crate::schema::{databases, sequences};

/// The state of a database, as the home node observes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    pub database: DatabaseId,
    /// The revision of the part that the node has applied.
    pub revision: i64,
    /// Whether the database exists and admits its logins.
    pub ready: bool,
    pub size_bytes: i64,
    /// Whether the database exceeds its size limit, so that sessions are read-only or logins are refused.
    pub read_only: bool,
    /// The time until which the backups contain all writes; `None` if the node does not know it.
    pub fresh_at: Option<Time>,
    /// The time at which the node last checked stored generations.
    pub checked_at: Option<Time>,
    /// The reason why backups fail, and the consequence.
    pub backup_error: Option<String>,
    /// The generation from which the node created the database, if it did not exist on the node.
    pub recovered_from: Option<String>,
}

/// The values of the previous report.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct Before {
    #[diesel(sql_type = Bool)]
    pub read_only: bool,
    #[diesel(sql_type = Bool)]
    pub backup_failed: bool,
    #[diesel(sql_type = Nullable<Text>)]
    pub recovered_key: Option<String>,
}

/// A database whose backups are too old.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct StaleBackup {
    #[diesel(sql_type = Uuid)]
    pub org_id: OrgId,
    #[diesel(sql_type = Uuid)]
    pub project_id: ProjectId,
    /// The name of the project.
    #[diesel(sql_type = Text)]
    pub name: String,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub fresh_at: Option<Time>,
}

/// A range of databases in the order of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatabaseRange {
    /// The database before the first one.
    pub after: DatabaseId,
    pub last: DatabaseId,
}

/// Observed state on a [`store::Connection`].
pub trait ReportRepository {
    /// Stores an observation, and returns the previous values. Does nothing if a later revision was reported, if the
    /// revision does not exist yet, or if the project has another database now.
    async fn database_observe(&mut self, project: ProjectId, observed: &Observation) -> Result<Option<Before>>;

    /// Stores the time at which the node last checked stored generations of the project.
    async fn generations_set_checked(&mut self, project: ProjectId, at: Time) -> Result<()>;

    /// Returns the databases after `after`, at most a batch.
    async fn database_range(&mut self, after: Option<DatabaseId>) -> Result<Option<DatabaseRange>>;

    /// Marks databases of the range whose backups are older than three intervals, at most `limit`, and returns them.
    async fn backup_mark_stale(&mut self, range: DatabaseRange, now: Time, limit: i64) -> Result<Vec<StaleBackup>>;

    /// Removes the mark from the databases of the range whose backups are recent again.
    async fn backup_unmark_fresh(&mut self, range: DatabaseRange, now: Time) -> Result<()>;
}

/// Locks the row, so that the previous values are exact. A node reports a revision that is higher than the current one
/// only if this schema was restored from a backup. The node then fetches the full state again.
///
/// A node does not know the state of backups when it starts, or before its first backup of a database that moved to it.
/// So only a report with `fresh_at` ends a failure.
const OBSERVE: &str = "UPDATE databases.databases d SET applied_revision = $3, ready = $4, size_bytes = $5, \
        read_only = $6, fresh_at = coalesce($7, d.fresh_at), \
        backup_failed = $8 OR $7 IS NULL AND d.backup_failed, recovered_key = coalesce($9, d.recovered_key) \
    FROM ( \
        SELECT id, read_only, backup_failed, recovered_key FROM databases.databases \
        WHERE id = $1 AND project_id = $2 AND applied_revision <= $3 \
            AND $3 <= (SELECT revision FROM databases.sequences WHERE project_id = $2) FOR UPDATE \
    ) before WHERE d.id = before.id RETURNING before.read_only, before.backup_failed, before.recovered_key";

/// Skips suspended projects, because their databases do not change. The condition on the shortest interval excludes
/// most databases before the joins.
const MARK_STALE: &str = "UPDATE databases.databases d SET backup_stale = true FROM ( \
        SELECT b.id, p.org_id, p.name FROM databases.databases b \
        JOIN databases.homes h ON h.project_id = b.project_id \
        JOIN databases.project_plans p ON p.id = b.project_id \
        WHERE b.id > $2 AND b.id <= $3 AND NOT b.backup_stale AND h.state <> 'suspended' \
            AND coalesce(b.fresh_at, b.created_at) < $1 - 3 * make_interval( \
                secs => least((SELECT i.shortest_seconds FROM databases.backup_intervals i), 3600)) \
            AND coalesce(b.fresh_at, b.created_at) \
                < $1 - 3 * make_interval(secs => coalesce(h.backup_interval_seconds, 3600)) \
        ORDER BY b.id LIMIT $4 FOR NO KEY UPDATE OF b SKIP LOCKED \
    ) stale WHERE d.id = stale.id RETURNING stale.org_id, d.project_id, stale.name, d.fresh_at";

const UNMARK_FRESH: &str = "UPDATE databases.databases d SET backup_stale = false FROM ( \
        SELECT b.id FROM databases.databases b JOIN databases.homes h ON h.project_id = b.project_id \
        WHERE b.id > $2 AND b.id <= $3 AND b.backup_stale AND coalesce(b.fresh_at, b.created_at) \
            >= $1 - 3 * make_interval(secs => coalesce(h.backup_interval_seconds, 3600)) \
        ORDER BY b.id FOR NO KEY UPDATE OF b SKIP LOCKED \
    ) fresh WHERE d.id = fresh.id";

impl ReportRepository for Connection {
    async fn database_observe(&mut self, project: ProjectId, observed: &Observation) -> Result<Option<Before>> {
        let update = diesel::sql_query(OBSERVE)
            .bind::<Uuid, _>(observed.database)
            .bind::<Uuid, _>(project)
            .bind::<BigInt, _>(observed.revision)
            .bind::<Bool, _>(observed.ready)
            .bind::<BigInt, _>(observed.size_bytes)
            .bind::<Bool, _>(observed.read_only)
            .bind::<Nullable<Timestamptz>, _>(observed.fresh_at)
            .bind::<Bool, _>(observed.backup_error.is_some())
            .bind::<Nullable<Text>, _>(observed.recovered_from.as_deref());
        Ok(Prepared(update).get_result(self).await.optional()?)
    }

    async fn generations_set_checked(&mut self, project: ProjectId, at: Time) -> Result<()> {
        let older = sequences::checked_at.is_null().or(sequences::checked_at.lt(at));
        let update = diesel::update(sequences::table.filter(sequences::project_id.eq(project)).filter(older));
        Prepared(update.set(sequences::checked_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn database_range(&mut self, after: Option<DatabaseId>) -> Result<Option<DatabaseRange>> {
        let after = after.unwrap_or(DatabaseId::earliest_at(Time::UNIX_EPOCH));
        let query = databases::table.filter(databases::id.gt(after)).order(databases::id).select(databases::id);
        let ids: Vec<DatabaseId> = query.limit(BATCH_SIZE).load(self).await?;
        Ok(ids.last().map(|last| DatabaseRange { after, last: *last }))
    }

    async fn backup_mark_stale(&mut self, range: DatabaseRange, now: Time, limit: i64) -> Result<Vec<StaleBackup>> {
        let mark = diesel::sql_query(MARK_STALE)
            .bind::<Timestamptz, _>(now)
            .bind::<Uuid, _>(range.after)
            .bind::<Uuid, _>(range.last)
            .bind::<BigInt, _>(limit);
        Ok(mark.load(self).await?)
    }

    async fn backup_unmark_fresh(&mut self, range: DatabaseRange, now: Time) -> Result<()> {
        let unmark = diesel::sql_query(UNMARK_FRESH)
            .bind::<Timestamptz, _>(now)
            .bind::<Uuid, _>(range.after)
            .bind::<Uuid, _>(range.last);
        unmark.execute(self).await?;
        Ok(())
    }
}
