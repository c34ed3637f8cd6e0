//! The names that need a certificate.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Bool, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{NamedProject, OrgId, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::model::NameState;
use crate::schema::{hostnames, names};

/// A name that needs a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, QueryableByName, Selectable)]
#[diesel(table_name = names)]
pub struct NameRecord {
    /// A hostname, or a name of the platform: the wildcard of its domain, or the hostname of the API.
    pub name: String,
    /// The organization of the project. For a name of the platform, the organization that hosts the zone.
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    /// The project of the hostname. `None` for a name of the platform.
    #[diesel(column_name = project_id)]
    pub project: Option<ProjectId>,
    /// False once the name needs no certificate.
    pub wanted: bool,
    pub state: NameState,
    /// The number of the run, which fences the writes of earlier runs.
    pub run: i64,
    /// The number of failed orders since the last certificate.
    pub failures: i32,
    /// The time at which the certificate is renewed.
    pub renew_at: Option<Time>,
    /// The expiry about which the organization was last notified.
    pub notified_expiry: Option<Time>,
}

impl NameRecord {
    /// Returns whether the name was removed, and its row is kept for its failures. A name in use that has failures is
    /// not [`NameState::Pending`].
    #[must_use]
    pub fn is_kept(&self) -> bool {
        !self.wanted && self.failures > 0 && self.state == NameState::Pending
    }
}

/// A claim of due names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    pub now: Time,
    /// The end of the lease.
    pub until: Time,
    /// The maximum number of names.
    pub limit: usize,
    /// The organizations of the runs in progress in this process, one for each run.
    pub running: &'a [OrgId],
    /// The maximum number of runs of an organization.
    pub org_limit: usize,
    /// Whether this server can run hostnames.
    pub includes_hostnames: bool,
    /// The names of the platform that this server can run.
    pub platform_names: &'a [String],
    /// Other names are claimed only if they are due since this time.
    pub overdue: Time,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameUpdate<'a> {
    pub state: NameState,
    /// The time of the next run.
    pub due_at: Time,
    pub failures: i32,
    pub last_error: Option<&'a str>,
    pub renew_at: Option<Time>,
    pub notified_expiry: Option<Time>,
}

/// A hostname that is served.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = hostnames)]
pub struct ServedHostname {
    pub name: String,
    #[diesel(column_name = project_id)]
    pub project: ProjectId,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
}

/// Names on a [`store::Connection`].
pub trait NameRepository {
    /// Returns the wanted names of a project.
    async fn name_list_wanted(&mut self, project: ProjectId) -> Result<Vec<String>>;

    /// Inserts a name, or makes an existing one wanted and gives it to the project. It is due at `at`. If it has
    /// failures and stays in its organization, it is due after the backoff.
    async fn name_upsert(&mut self, name: &str, org: OrgId, project: Option<ProjectId>, at: Time) -> Result<()>;

    /// Makes names of a project unwanted, and due at `at`.
    async fn name_end(&mut self, project: ProjectId, names: &[String], at: Time) -> Result<()>;

    /// Makes a name of the platform unwanted, and due at `at`.
    async fn name_end_platform(&mut self, name: &str, run: i64, at: Time) -> Result<()>;

    /// Returns those of these names that exist.
    async fn name_list(&mut self, names: &[String]) -> Result<Vec<NameRecord>>;

    /// Locks those of these names that exist, in their order, and returns them.
    async fn name_lock_all(&mut self, names: &[String]) -> Result<Vec<NameRecord>>;

    /// Claims due names, in the order of their due times, but first issues last. They are due again at the end of the
    /// lease.
    async fn names_claim_due(&mut self, claim: Claim<'_>) -> Result<Vec<NameRecord>>;

    /// Stores the result of a run.
    async fn name_update(&mut self, name: &str, run: i64, update: NameUpdate<'_>) -> Result<()>;

    /// Sets the time of the next run, and the error message.
    async fn name_reschedule(&mut self, name: &str, run: i64, due_at: Time, last_error: Option<&str>) -> Result<()>;

    /// Stores the time of the renewal and of the next run, and removes the error of an earlier run.
    async fn name_set_renewal(&mut self, name: &str, run: i64, renew_at: Time, due_at: Time) -> Result<()>;

    /// Keeps a removed name without order and certificate, with its failures. It is due at `until`.
    async fn name_keep(&mut self, name: &str, until: Time) -> Result<()>;

    /// Deletes a name without order and certificate.
    async fn name_delete(&mut self, name: &str) -> Result<()>;

    /// Returns up to `limit` projects with a served hostname that is not a wanted name of the project. Ignores the
    /// hostnames one label below `parent`.
    async fn project_list_missing(&mut self, parent: Option<&str>, limit: i64) -> Result<Vec<(OrgId, ProjectId)>>;

    /// Returns up to `limit` projects with a wanted name that is not served, or that is one label below `parent`.
    async fn project_list_unneeded(&mut self, parent: Option<&str>, limit: i64) -> Result<Vec<(OrgId, ProjectId)>>;

    /// Returns the project that serves a hostname.
    async fn hostname_find_project(&mut self, name: &str) -> Result<Option<NamedProject>>;

    /// Returns the served hostnames of a project.
    async fn hostname_list_served(&mut self, project: ProjectId) -> Result<Vec<ServedHostname>>;
}

/// `$4` contains the organizations of the runs in progress, `$5` those that have no run left, and `$6` is the maximum
/// number of runs of an organization. `$7` to `$9` are the last fields of [`Claim`]. Only the first names of a long
/// backlog are considered. The organizations in `$5` are skipped, so the next claim reaches the others.
const CLAIM: &str = "\
    WITH candidates AS ( \
        SELECT name, org_id, due_at, wanted AND renew_at IS NULL AS is_first FROM certificates.names \
        WHERE due_at <= $1 AND org_id <> ALL ($5) \
            AND (NOT wanted OR due_at <= $9 OR CASE WHEN project_id IS NULL THEN name = ANY ($8) ELSE $7 END) \
        ORDER BY is_first, due_at LIMIT 256), \
    ranked AS ( \
        SELECT name, due_at, is_first, row_number() OVER (PARTITION BY org_id ORDER BY is_first, due_at) \
            + cardinality(array_positions($4, org_id)) AS rank FROM candidates) \
    UPDATE certificates.names SET due_at = $2, run = run + 1 WHERE name = ANY (ARRAY( \
        SELECT n.name FROM ranked r JOIN certificates.names n ON n.name = r.name \
        WHERE r.rank <= $6 AND n.due_at <= $1 ORDER BY r.is_first, r.due_at LIMIT $3 FOR UPDATE OF n SKIP LOCKED)) \
    RETURNING *";

/// A hostname of another organization starts again, and the wildcard of another organization keeps its certificate.
/// The delay in `due_at` is that of the next order after a failure: 2 minutes, doubled up to 6 hours.
const UPSERT: &str = "\
    INSERT INTO certificates.names AS n (name, org_id, project_id, wanted, state, due_at, created_at) \
    VALUES ($1, $2, $3, true, 'pending', $4, $4) \
    ON CONFLICT (name) DO UPDATE SET org_id = $2, project_id = $3, wanted = true, \
        due_at = CASE WHEN n.org_id = $2 AND n.failures > 0 \
            THEN $4 + LEAST(interval '2 minutes' * 2 ^ LEAST(n.failures - 1, 16), interval '6 hours') ELSE $4 END, \
        failures = CASE WHEN n.org_id = $2 THEN n.failures ELSE 0 END, \
        last_error = CASE WHEN n.org_id = $2 AND n.failures > 0 THEN n.last_error END, \
        state = CASE WHEN n.org_id <> $2 AND $3 IS NOT NULL THEN 'pending' \
            WHEN n.state = 'failed' AND (n.failures = 0 OR n.org_id <> $2) THEN 'pending' \
            WHEN n.state = 'pending' AND n.failures > 0 AND n.org_id = $2 THEN 'failed' ELSE n.state END, \
        renew_at = CASE WHEN n.org_id = $2 OR $3 IS NULL THEN n.renew_at END";

/// `$1` is the parent of the names that the wildcard covers. The empty text covers none.
const MISSING: &str = "\
    SELECT DISTINCT h.org_id, h.project_id FROM certificates.hostnames h \
    LEFT JOIN certificates.names n ON n.name = h.name AND n.project_id = h.project_id AND n.wanted \
    WHERE n.name IS NULL AND ($1 = '' OR substr(h.name, strpos(h.name, '.') + 1) <> $1) LIMIT $2";

const UNNEEDED: &str = "\
    SELECT DISTINCT n.org_id, n.project_id FROM certificates.names n \
    LEFT JOIN certificates.hostnames h ON h.name = n.name AND h.project_id = n.project_id \
    WHERE n.wanted AND n.project_id IS NOT NULL \
        AND (h.name IS NULL OR ($1 <> '' AND substr(n.name, strpos(n.name, '.') + 1) = $1)) LIMIT $2";

#[derive(QueryableByName)]
struct ProjectRow {
    #[diesel(sql_type = Uuid)]
    org_id: OrgId,
    #[diesel(sql_type = Uuid)]
    project_id: ProjectId,
}

impl NameRepository for Connection {
    async fn name_list_wanted(&mut self, project: ProjectId) -> Result<Vec<String>> {
        let wanted = names::table.filter(names::project_id.eq(project).and(names::wanted));
        Ok(wanted.order(names::name).select(names::name).load(self).await?)
    }

    async fn name_upsert(&mut self, name: &str, org: OrgId, project: Option<ProjectId>, at: Time) -> Result<()> {
        let upsert = diesel::sql_query(UPSERT).bind::<Text, _>(name).bind::<Uuid, _>(org);
        let upsert = upsert.bind::<diesel::sql_types::Nullable<Uuid>, _>(project).bind::<Timestamptz, _>(at);
        Prepared(upsert).execute(self).await?;
        Ok(())
    }

    async fn name_end(&mut self, project: ProjectId, names: &[String], at: Time) -> Result<()> {
        let ended = names::table.filter(names::project_id.eq(project).and(names::name.eq_any(names)));
        diesel::update(ended).set((names::wanted.eq(false), names::due_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn name_end_platform(&mut self, name: &str, run: i64, at: Time) -> Result<()> {
        let current = names::table.find(name).filter(names::run.eq(run).and(names::project_id.is_null()));
        diesel::update(current).set((names::wanted.eq(false), names::due_at.eq(at))).execute(self).await?;
        Ok(())
    }

    async fn name_list(&mut self, names: &[String]) -> Result<Vec<NameRecord>> {
        let query = names::table.filter(names::name.eq_any(names)).select(NameRecord::as_select());
        Ok(query.load(self).await?)
    }

    async fn name_lock_all(&mut self, names: &[String]) -> Result<Vec<NameRecord>> {
        let query = names::table.filter(names::name.eq_any(names)).select(NameRecord::as_select());
        Ok(query.order(names::name).for_update().load(self).await?)
    }

    async fn names_claim_due(&mut self, claim: Claim<'_>) -> Result<Vec<NameRecord>> {
        let Claim { now, until, limit, running, org_limit, includes_hostnames, platform_names, overdue } = claim;
        let runs = |org: &OrgId| running.iter().filter(|running| *running == org).count();
        let full: Vec<OrgId> = running.iter().filter(|org| runs(org) >= org_limit).copied().collect();
        let to_integer = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let claim = diesel::sql_query(CLAIM)
            .bind::<Timestamptz, _>(now)
            .bind::<Timestamptz, _>(until)
            .bind::<BigInt, _>(to_integer(limit))
            .bind::<Array<Uuid>, _>(running)
            .bind::<Array<Uuid>, _>(full)
            .bind::<BigInt, _>(to_integer(org_limit))
            .bind::<Bool, _>(includes_hostnames)
            .bind::<Array<Text>, _>(platform_names)
            .bind::<Timestamptz, _>(overdue);
        Ok(Prepared(claim).load(self).await?)
    }

    async fn name_update(&mut self, name: &str, run: i64, update: NameUpdate<'_>) -> Result<()> {
        let NameUpdate { state, due_at, failures, last_error, renew_at, notified_expiry } = update;
        let current = names::table.find(name).filter(names::run.eq(run));
        let change = (
            names::state.eq(state),
            names::due_at.eq(due_at),
            names::failures.eq(failures),
            names::last_error.eq(last_error),
            names::renew_at.eq(renew_at),
            names::notified_expiry.eq(notified_expiry),
        );
        diesel::update(current).set(change).execute(self).await?;
        Ok(())
    }

    async fn name_reschedule(&mut self, name: &str, run: i64, due_at: Time, last_error: Option<&str>) -> Result<()> {
        // A change of the hostname has made the name due immediately.
        let current = names::table.find(name).filter(names::run.eq(run).and(names::wanted));
        diesel::update(current).set((names::due_at.eq(due_at), names::last_error.eq(last_error))).execute(self).await?;
        Ok(())
    }

    async fn name_set_renewal(&mut self, name: &str, run: i64, renew_at: Time, due_at: Time) -> Result<()> {
        let current = names::table.find(name).filter(names::run.eq(run).and(names::wanted));
        let change = (names::renew_at.eq(renew_at), names::due_at.eq(due_at), names::last_error.eq(None::<&str>));
        diesel::update(current).set(change).execute(self).await?;
        Ok(())
    }

    async fn name_keep(&mut self, name: &str, until: Time) -> Result<()> {
        let change = (
            names::state.eq(NameState::Pending),
            names::due_at.eq(until),
            names::renew_at.eq(None::<Time>),
            names::notified_expiry.eq(None::<Time>),
        );
        diesel::update(names::table.find(name)).set(change).execute(self).await?;
        Ok(())
    }

    async fn name_delete(&mut self, name: &str) -> Result<()> {
        diesel::delete(names::table.find(name)).execute(self).await?;
        Ok(())
    }

    async fn project_list_missing(&mut self, parent: Option<&str>, limit: i64) -> Result<Vec<(OrgId, ProjectId)>> {
        load_projects(self, MISSING, parent, limit).await
    }

    async fn project_list_unneeded(&mut self, parent: Option<&str>, limit: i64) -> Result<Vec<(OrgId, ProjectId)>> {
        load_projects(self, UNNEEDED, parent, limit).await
    }

    async fn hostname_find_project(&mut self, name: &str) -> Result<Option<NamedProject>> {
        let query = hostnames::table.find(name).select((hostnames::project_id, hostnames::project.assume_not_null()));
        let found = query.first::<(ProjectId, String)>(self).await.optional()?;
        Ok(found.map(|(id, name)| NamedProject { id, name }))
    }

    async fn hostname_list_served(&mut self, project: ProjectId) -> Result<Vec<ServedHostname>> {
        let served = hostnames::table.filter(hostnames::project_id.eq(project));
        Ok(served.order(hostnames::name).select(ServedHostname::as_select()).load(self).await?)
    }
}

async fn load_projects(
    connection: &mut Connection,
    query: &str,
    parent: Option<&str>,
    limit: i64,
) -> Result<Vec<(OrgId, ProjectId)>> {
    let query = diesel::sql_query(query).bind::<Text, _>(parent.unwrap_or_default()).bind::<BigInt, _>(limit);
    let found: Vec<ProjectRow> = query.load(connection).await?;
    Ok(found.into_iter().map(|row| (row.org_id, row.project_id)).collect())
}
