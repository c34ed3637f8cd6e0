//! Generations.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::{DatabaseId, ProjectId, Time};
use store::{BATCH_SIZE, Connection, Result};

use crate::model::{Generation, GenerationKind};
use crate::schema::{generations, sequences, sources};

/// A generation as a node reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GenerationRecord {
    pub database: DatabaseId,
    /// The name of the stored object. It identifies the generation within its project.
    pub key: String,
    pub epoch: i64,
    pub kind: GenerationKind,
    pub size_bytes: i64,
    pub sha256: String,
    pub created_at: Time,
}

/// The number of days for which scheduled generations are kept, for each plan.
#[derive(Debug, Clone, Copy)]
pub struct BackupDays {
    pub free: u32,
    pub pro: u32,
}

/// Generations on a [`store::Connection`].
pub trait GenerationRepository {
    /// Returns whether the project has a generation with this key.
    async fn generation_exists(&mut self, project: ProjectId, key: &str) -> Result<bool>;

    /// Inserts a generation. The caller holds the lock of the project's counters.
    async fn generation_insert(&mut self, project: ProjectId, seq: i64, generation: GenerationRecord) -> Result<()>;

    /// Lists the generations of a project by descending number: scheduled ones that were made after `scheduled_after`,
    /// others that were made after `others_after`, and the one from which the node would create a lost database.
    async fn generation_list(
        &mut self,
        project: ProjectId,
        scheduled_after: Time,
        others_after: Time,
    ) -> Result<Vec<Generation>>;

    /// Returns the newest generation of a project's database. The node keeps it as long as the database exists.
    async fn generation_newest(&mut self, project: ProjectId, database: DatabaseId) -> Result<Option<Generation>>;

    /// Returns the generation with this key.
    async fn generation_by_key(&mut self, project: ProjectId, key: &str) -> Result<Option<Generation>>;

    /// Returns the generation with this number.
    async fn generation_by_seq(&mut self, project: ProjectId, seq: i64) -> Result<Option<Generation>>;

    /// Returns the time at which the node last checked stored generations of the project.
    async fn generations_checked_at(&mut self, project: ProjectId) -> Result<Option<Time>>;

    /// Returns the end of the next batch for [`Self::generation_purge`]: the time after the oldest generations that were
    /// made at `start` or later and whose retention may be over. Returns `None` if no such generation exists.
    async fn generation_batch_end(&mut self, days: BackupDays, now: Time, start: Option<Time>) -> Result<Option<Time>>;

    /// Deletes the generations whose retention is over among those that were made at `start` or later, and before `end`,
    /// except those of projects whose counters are locked. Returns their number.
    async fn generation_purge(&mut self, days: BackupDays, now: Time, start: Option<Time>, end: Time) -> Result<usize>;
}

/// The shortest retention bounds the times, so that the index on them serves the statement. The end is exclusive, because
/// [`Time`] has a lower precision than the column.
const BATCH_END: &str = "SELECT max(created_at) + interval '1 millisecond' AS batch_end FROM ( \
        SELECT created_at FROM databases.generations \
        WHERE created_at >= coalesce($4, '-infinity') \
            AND created_at < $1 - interval '2 hours' - make_interval(days => least($2, $3, 30)) \
        ORDER BY created_at LIMIT $5 \
    ) batch";

/// Deletes a generation one hour later than the node deletes its object, which is one hour after the end of the
/// retention. Records the time of the newest deleted one of each project. A deleted project has no plan, so all its
/// generations have the retention of those that are not scheduled. The condition on the plan is
/// [`kernel::Plan::for_retention`] in SQL. The scalar subqueries read only the projects of the batch. With joins, Postgres
/// can read the plan and the source of every project. Locked counters are skipped: to wait for those of several projects
/// could deadlock with a batch of reports.
const PURGE: &str = "WITH expired AS ( \
    SELECT g.project_id, g.seq, g.created_at FROM databases.generations g \
    WHERE g.created_at >= coalesce($4, '-infinity') AND g.created_at < $5 \
        AND g.created_at < $1 - interval '2 hours' - make_interval(days => CASE \
            WHEN g.kind <> 'scheduled' THEN 30 \
            ELSE coalesce(( \
                SELECT CASE WHEN p.plan = 'free' AND coalesce(p.pro_retention_until <= $1, true) THEN $2 ELSE $3 END \
                FROM databases.project_plans p WHERE p.id = g.project_id \
            ), 30) END) \
        AND g.key IS DISTINCT FROM (SELECT s.source_key FROM databases.sources s WHERE s.project_id = g.project_id) \
        AND NOT EXISTS ( \
            SELECT FROM databases.operations o \
            WHERE o.project_id = g.project_id AND o.seq = g.seq AND o.ended_at IS NULL) \
    ), locked AS ( \
        SELECT s.project_id FROM databases.sequences s WHERE s.project_id IN (SELECT e.project_id FROM expired e) \
        FOR NO KEY UPDATE SKIP LOCKED \
    ), recorded AS ( \
        UPDATE databases.sequences s SET purged_until = greatest(s.purged_until, e.newest) \
        FROM locked l JOIN (SELECT project_id, max(created_at) AS newest FROM expired GROUP BY project_id) e \
            ON e.project_id = l.project_id \
        WHERE s.project_id = l.project_id RETURNING s.project_id \
    ) \
    DELETE FROM databases.generations g USING expired e JOIN recorded r ON r.project_id = e.project_id \
    WHERE g.project_id = e.project_id AND g.seq = e.seq";

/// Limits the days, so that the interval cannot overflow. A century is long enough for any setting.
const MAX_DAYS: i32 = 36_500;

#[derive(QueryableByName)]
struct BatchEnd {
    #[diesel(sql_type = Nullable<Timestamptz>)]
    batch_end: Option<Time>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = generations)]
struct GenerationRow {
    epoch: i64,
    seq: i64,
    kind: GenerationKind,
    size_bytes: i64,
    sha256: String,
    key: String,
    created_at: Time,
}

impl GenerationRepository for Connection {
    async fn generation_exists(&mut self, project: ProjectId, key: &str) -> Result<bool> {
        Ok(self.generation_by_key(project, key).await?.is_some())
    }

    async fn generation_insert(&mut self, project: ProjectId, seq: i64, generation: GenerationRecord) -> Result<()> {
        let GenerationRecord { database, key, epoch, kind, size_bytes, sha256, created_at } = generation;
        let row = (
            generations::project_id.eq(project),
            generations::seq.eq(seq),
            generations::database_id.eq(database),
            generations::epoch.eq(epoch),
            generations::kind.eq(kind),
            generations::size_bytes.eq(size_bytes),
            generations::sha256.eq(sha256),
            generations::key.eq(key),
            generations::created_at.eq(created_at),
        );
        diesel::insert_into(generations::table).values(row).execute(self).await?;
        Ok(())
    }

    async fn generation_list(
        &mut self,
        project: ProjectId,
        scheduled_after: Time,
        others_after: Time,
    ) -> Result<Vec<Generation>> {
        let is_scheduled = generations::kind.eq(GenerationKind::Scheduled);
        let kept = is_scheduled
            .and(generations::created_at.gt(scheduled_after))
            .or(generations::kind.ne(GenerationKind::Scheduled).and(generations::created_at.gt(others_after)));
        let source = sources::table.filter(sources::project_id.eq(project)).select(sources::source_key).single_value();
        let query = generations::table
            .filter(generations::project_id.eq(project))
            .filter(kept.or(generations::key.nullable().eq(source)))
            .order(generations::seq.desc());
        let rows = query.select(GenerationRow::as_select()).load(self).await?;
        Ok(rows.into_iter().map(Generation::from).collect())
    }

    async fn generation_newest(&mut self, project: ProjectId, database: DatabaseId) -> Result<Option<Generation>> {
        let own = generations::project_id.eq(project).and(generations::database_id.eq(database));
        let query = generations::table.filter(own).order(generations::seq.desc());
        let row = query.select(GenerationRow::as_select()).first(self).await.optional()?;
        Ok(row.map(Generation::from))
    }

    async fn generation_by_key(&mut self, project: ProjectId, key: &str) -> Result<Option<Generation>> {
        let query = generations::table.filter(generations::project_id.eq(project).and(generations::key.eq(key)));
        let row = query.select(GenerationRow::as_select()).first(self).await.optional()?;
        Ok(row.map(Generation::from))
    }

    async fn generation_by_seq(&mut self, project: ProjectId, seq: i64) -> Result<Option<Generation>> {
        let query = generations::table.find((project, seq)).select(GenerationRow::as_select());
        Ok(query.first(self).await.optional()?.map(Generation::from))
    }

    async fn generations_checked_at(&mut self, project: ProjectId) -> Result<Option<Time>> {
        let query = sequences::table.find(project).select(sequences::checked_at);
        Ok(query.first::<Option<Time>>(self).await.optional()?.flatten())
    }

    async fn generation_batch_end(&mut self, days: BackupDays, now: Time, start: Option<Time>) -> Result<Option<Time>> {
        let batch = diesel::sql_query(BATCH_END)
            .bind::<Timestamptz, _>(now)
            .bind::<Integer, _>(sql_days(days.free))
            .bind::<Integer, _>(sql_days(days.pro))
            .bind::<Nullable<Timestamptz>, _>(start)
            .bind::<BigInt, _>(BATCH_SIZE);
        Ok(batch.get_result::<BatchEnd>(self).await?.batch_end)
    }

    async fn generation_purge(&mut self, days: BackupDays, now: Time, start: Option<Time>, end: Time) -> Result<usize> {
        let purge = diesel::sql_query(PURGE)
            .bind::<Timestamptz, _>(now)
            .bind::<Integer, _>(sql_days(days.free))
            .bind::<Integer, _>(sql_days(days.pro))
            .bind::<Nullable<Timestamptz>, _>(start)
            .bind::<Timestamptz, _>(end);
        Ok(purge.execute(self).await?)
    }
}

fn sql_days(days: u32) -> i32 {
    i32::try_from(days).unwrap_or(MAX_DAYS).min(MAX_DAYS)
}

impl From<GenerationRow> for Generation {
    fn from(row: GenerationRow) -> Self {
        let GenerationRow { epoch, seq, kind, size_bytes, sha256, key, created_at } = row;
        Self { epoch, seq, kind, size_bytes, sha256, offsite_key: key, created_at }
    }
}
