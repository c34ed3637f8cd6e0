//! Claims of hostnames and their ownership verification.

use diesel::dsl::{AsSelect, case_when};
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, Time};
use store::{BATCH_SIZE, Connection, Error, Prepared, Result, purge_batch};

use crate::model::{Check, HostnameKind, HostnameState, Proof};
use crate::schema::{first_claims, former_hostnames, hostnames, projects};

/// A claim to insert.
#[derive(Debug, Clone, Copy)]
pub struct NewClaim<'a> {
    pub name: &'a str,
    pub project: ProjectId,
    pub org: OrgId,
    /// The token for the TXT record.
    pub token: &'a str,
    /// A message for users about the state of the claim.
    pub error: Option<&'a str>,
    pub at: Time,
    pub expires_at: Time,
    /// The time until which the claim reserves the name. After it, a claim of another project replaces this one.
    pub reserved_until: Time,
}

/// A custom hostname of a project, with the data for its verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub project: ProjectId,
    pub project_name: String,
    pub org: OrgId,
    pub state: HostnameState,
    pub token: String,
    pub expires_at: Option<Time>,
    /// The time until which the claim reserves the name.
    pub reserved_until: Option<Time>,
    /// The time at which an active hostname first failed its verification.
    pub unverified_since: Option<Time>,
    /// Whether the hostname was last active for another organization.
    pub held_by_another_org: bool,
    /// The time of the next verification when the claim was read: the end of the lease, if the claim is leased.
    pub next_check_at: Option<Time>,
}

/// A verification of a claim that found no proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedVerification {
    pub name: String,
    /// Identifies the project's claim among claims of the same name.
    pub token: String,
    pub error: Option<String>,
    pub checks: Vec<Check>,
    /// [`Claim::next_check_at`].
    pub previous_check_at: Option<Time>,
    /// The time of the next verification. Not recorded if the stored time differs from `previous_check_at`: the hostname
    /// became due during the verification, which may not have seen the reason.
    pub next_check_at: Time,
}

impl FailedVerification {
    pub(crate) fn new(claim: &Claim, error: Option<String>, checks: Vec<Check>, next_check_at: Time) -> Self {
        let (name, token, previous_check_at) = (claim.name.clone(), claim.token.clone(), claim.next_check_at);
        Self { name, token, error, checks, previous_check_at, next_check_at }
    }
}

/// Claims of hostnames on a [`store::Connection`].
pub trait ClaimRepository {
    /// Inserts a claim. Returns false if the name is in use. Also stores the organization's first claim of the name.
    async fn claim_insert(&mut self, claim: &NewClaim<'_>) -> Result<bool>;

    /// Finds the claim of a custom hostname.
    async fn claim_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Claim>>;

    /// Leases up to `limit` claims that are due at `due_at` until `lease_expires_at`. Other workers skip leased claims.
    async fn claims_lease_due(&mut self, due_at: Time, lease_expires_at: Time, limit: i64) -> Result<Vec<Claim>>;

    /// Makes a batch of the organization's custom hostnames due that are equal to or below a domain, and not due yet.
    /// Begins after the name `after`. Returns the names.
    async fn claims_set_due(&mut self, org: OrgId, domain: &str, now: Time, after: &str) -> Result<Vec<String>>;

    /// Activates a pending hostname; returns false when it is no longer pending.
    async fn claim_activate(&mut self, claim: &Claim, proof: Proof, at: Time, next_check_at: Time) -> Result<bool>;

    /// Records a successful verification of an active hostname. Keeps the stored time of the next verification if it
    /// differs from that of the claim.
    async fn claim_record_proof(&mut self, claim: &Claim, proof: Proof, next_check_at: Time) -> Result<()>;

    /// Records failed verifications. A failure without an error message keeps the stored message.
    async fn claims_record_failures(&mut self, failures: &[FailedVerification]) -> Result<()>;

    /// Marks an active hostname as unverified; returns false when it already was.
    async fn claim_mark_unverified(&mut self, failure: &FailedVerification, at: Time) -> Result<bool>;

    /// Turns an active, unverified hostname into a pending claim of the organization. Returns false if the hostname is
    /// no longer unverified. The reservation of the name starts `at` this time.
    async fn claim_detach(
        &mut self,
        org: OrgId,
        failure: &FailedVerification,
        at: Time,
        claim_expires_at: Time,
    ) -> Result<bool>;

    /// Deletes an expired claim; returns false when it was verified or deleted concurrently.
    async fn claim_delete_expired(&mut self, claim: &Claim, at: Time) -> Result<bool>;

    /// Deletes a batch of the first claims that were made before `before`, and returns their number.
    async fn first_claims_purge(&mut self, before: Time) -> Result<usize>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = hostnames)]
struct ClaimRow {
    name: String,
    project_id: ProjectId,
    state: HostnameState,
    verification_token: Option<String>,
    claim_expires_at: Option<Time>,
    reserved_until: Option<Time>,
    unverified_since: Option<Time>,
    next_check_at: Option<Time>,
}

type ClaimTuple = (ClaimRow, (OrgId, String), Option<OrgId>);

/// Inserts a claim and the first claim of its organization. A single statement saves a round trip at every claim.
const INSERT: &str = "\
    WITH first AS (INSERT INTO projects.first_claims (org_id, name, claimed_at) VALUES ($3, $1, $6) \
        ON CONFLICT DO NOTHING) \
    INSERT INTO projects.hostnames (name, project_id, kind, state, verification_token, last_error, created_at, \
        next_check_at, claim_expires_at, reserved_until) \
    VALUES ($1, $2, 'custom', 'pending_dns', $4, $5, $6, $6, $7, $8) ON CONFLICT (name) DO NOTHING";

/// With `ARRAY(…)`, Postgres evaluates the limit only once.
const PURGE_FIRST_CLAIMS: &str = "\
    DELETE FROM projects.first_claims WHERE ctid = ANY (ARRAY( \
        SELECT ctid FROM projects.first_claims WHERE claimed_at < $1 LIMIT $2))";

/// Locks the rows in the order of their names, like [`RECORD_FAILURES`], so that the two cannot deadlock. With a join,
/// Postgres could read the hostnames of all organizations.
const SET_DUE: &str = "\
    UPDATE projects.hostnames SET next_check_at = $1 WHERE name = ANY (ARRAY( \
        SELECT name FROM projects.hostnames \
        WHERE project_id = ANY (ARRAY(SELECT id FROM projects.projects WHERE org_id = $2)) AND kind = 'custom' \
            AND next_check_at > $1 AND name > $4 COLLATE \"C\" AND right('.' || name, length($3) + 1) = '.' || $3 \
        ORDER BY name COLLATE \"C\" LIMIT $5 FOR NO KEY UPDATE)) RETURNING name";

/// Records all failures in one statement, from parallel arrays. Does not write an error message to a hostname that was
/// verified concurrently. The join would lock the rows in any order.
const RECORD_FAILURES: &str = "\
    UPDATE projects.hostnames h \
    SET checks = u.checks, last_error = coalesce(u.error, h.last_error), \
        next_check_at = CASE WHEN h.next_check_at = u.previous_check_at THEN u.next_check_at ELSE h.next_check_at END \
    FROM unnest($1, $2, $3, $4, $5, $6) AS u (name, token, error, checks, previous_check_at, next_check_at) \
    WHERE h.name = u.name AND h.verification_token = u.token \
        AND (u.error IS NULL OR h.state = 'pending_dns' OR h.unverified_since IS NOT NULL) \
        AND h.name = ANY (ARRAY( \
            SELECT name FROM projects.hostnames WHERE name = ANY ($1) ORDER BY name COLLATE \"C\" FOR NO KEY UPDATE))";

impl ClaimRepository for Connection {
    async fn claim_insert(&mut self, claim: &NewClaim<'_>) -> Result<bool> {
        let NewClaim { name, project, org, token, error, at, expires_at, reserved_until } = *claim;
        let insert = diesel::sql_query(INSERT)
            .bind::<Text, _>(name)
            .bind::<Uuid, _>(project)
            .bind::<Uuid, _>(org)
            .bind::<Text, _>(token)
            .bind::<Nullable<Text>, _>(error)
            .bind::<Timestamptz, _>(at)
            .bind::<Timestamptz, _>(expires_at)
            .bind::<Timestamptz, _>(reserved_until);
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn claim_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Claim>> {
        let own = hostnames::project_id.eq(project).and(hostnames::kind.eq(HostnameKind::Custom));
        let found = claims().filter(hostnames::name.eq(name)).filter(own).first::<ClaimTuple>(self).await.optional()?;
        found.map(Claim::try_from).transpose()
    }

    async fn claims_lease_due(&mut self, due_at: Time, lease_expires_at: Time, limit: i64) -> Result<Vec<Claim>> {
        // With `ARRAY(…)`, Postgres evaluates the limit only once.
        let lease = diesel::sql_query(
            "UPDATE projects.hostnames SET next_check_at = $2 WHERE name = ANY (ARRAY( \
                SELECT name FROM projects.hostnames WHERE kind = 'custom' AND next_check_at <= $1 \
                ORDER BY next_check_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING name",
        );
        let lease =
            lease.bind::<Timestamptz, _>(due_at).bind::<Timestamptz, _>(lease_expires_at).bind::<BigInt, _>(limit);
        let leased: Vec<Name> = Prepared(lease).load(self).await?;
        let names: Vec<String> = leased.into_iter().map(|row| row.name).collect();
        let found = claims().filter(hostnames::name.eq_any(names)).load::<ClaimTuple>(self).await?;
        found.into_iter().map(Claim::try_from).collect()
    }

    async fn claims_set_due(&mut self, org: OrgId, domain: &str, now: Time, after: &str) -> Result<Vec<String>> {
        let set_due = diesel::sql_query(SET_DUE)
            .bind::<Timestamptz, _>(now)
            .bind::<Uuid, _>(org)
            .bind::<Text, _>(domain)
            .bind::<Text, _>(after)
            .bind::<BigInt, _>(BATCH_SIZE);
        let due: Vec<Name> = Prepared(set_due).load(self).await?;
        Ok(due.into_iter().map(|row| row.name).collect())
    }

    async fn claim_activate(&mut self, claim: &Claim, proof: Proof, at: Time, next_check_at: Time) -> Result<bool> {
        let pending = hostnames::verification_token
            .eq(&claim.token)
            .and(hostnames::state.eq(HostnameState::PendingDns))
            .and(hostnames::project_id.eq(claim.project));
        let activate = diesel::update(hostnames::table.find(&claim.name).filter(pending)).set((
            hostnames::state.eq(HostnameState::Active),
            hostnames::proof.eq(proof),
            hostnames::verified_at.eq(at),
            hostnames::next_check_at.eq(next_check_at),
            hostnames::last_error.eq(None::<String>),
            hostnames::checks.eq(None::<serde_json::Value>),
            hostnames::claim_expires_at.eq(None::<Time>),
            hostnames::reserved_until.eq(None::<Time>),
        ));
        if Prepared(activate).execute(self).await? == 0 {
            return Ok(false);
        }
        remember_proved(self, claim.org, &claim.name, at).await?;
        Ok(true)
    }

    async fn claim_record_proof(&mut self, claim: &Claim, proof: Proof, next_check_at: Time) -> Result<()> {
        let same = hostnames::verification_token.eq(&claim.token).and(hostnames::state.eq(HostnameState::Active));
        let record = diesel::update(hostnames::table.find(&claim.name).filter(same)).set((
            hostnames::proof.eq(proof),
            replace_next_check_at(claim.next_check_at, next_check_at),
            hostnames::unverified_since.eq(None::<Time>),
            hostnames::last_error.eq(None::<String>),
            hostnames::checks.eq(None::<serde_json::Value>),
        ));
        Prepared(record).execute(self).await?;
        Ok(())
    }

    async fn claims_record_failures(&mut self, failures: &[FailedVerification]) -> Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let checks = failures.iter().map(|it| json(&it.checks)).collect::<Result<Vec<_>>>()?;
        let record = diesel::sql_query(RECORD_FAILURES)
            .bind::<Array<Text>, _>(failures.iter().map(|it| it.name.as_str()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(failures.iter().map(|it| it.token.as_str()).collect::<Vec<_>>())
            .bind::<Array<Nullable<Text>>, _>(failures.iter().map(|it| it.error.as_deref()).collect::<Vec<_>>())
            .bind::<Array<Jsonb>, _>(checks)
            .bind::<Array<Nullable<Timestamptz>>, _>(failures.iter().map(|it| it.previous_check_at).collect::<Vec<_>>())
            .bind::<Array<Timestamptz>, _>(failures.iter().map(|it| it.next_check_at).collect::<Vec<_>>());
        Prepared(record).execute(self).await?;
        Ok(())
    }

    async fn claim_mark_unverified(&mut self, failure: &FailedVerification, at: Time) -> Result<bool> {
        let verified = hostnames::verification_token
            .eq(&failure.token)
            .and(hostnames::state.eq(HostnameState::Active))
            .and(hostnames::unverified_since.is_null());
        let mark = diesel::update(hostnames::table.find(&failure.name).filter(verified)).set((
            hostnames::unverified_since.eq(at),
            hostnames::last_error.eq(&failure.error),
            hostnames::checks.eq(json(&failure.checks)?),
            replace_next_check_at(failure.previous_check_at, failure.next_check_at),
        ));
        Ok(Prepared(mark).execute(self).await? == 1)
    }

    async fn claim_detach(
        &mut self,
        org: OrgId,
        failure: &FailedVerification,
        at: Time,
        claim_expires_at: Time,
    ) -> Result<bool> {
        let unverified = hostnames::verification_token
            .eq(&failure.token)
            .and(hostnames::state.eq(HostnameState::Active))
            .and(hostnames::unverified_since.is_not_null());
        let detach = diesel::update(hostnames::table.find(&failure.name).filter(unverified)).set((
            hostnames::state.eq(HostnameState::PendingDns),
            hostnames::proof.eq(None::<Proof>),
            hostnames::verified_at.eq(None::<Time>),
            hostnames::unverified_since.eq(None::<Time>),
            hostnames::last_error.eq(&failure.error),
            hostnames::checks.eq(json(&failure.checks)?),
            hostnames::next_check_at.eq(failure.next_check_at),
            hostnames::claim_expires_at.eq(claim_expires_at),
            hostnames::reserved_until.eq(claim_expires_at),
        ));
        if Prepared(detach).execute(self).await? == 0 {
            return Ok(false);
        }
        let row = (first_claims::org_id.eq(org), first_claims::name.eq(&failure.name), first_claims::claimed_at.eq(at));
        let remember = diesel::insert_into(first_claims::table)
            .values(row)
            .on_conflict((first_claims::org_id, first_claims::name))
            .do_update()
            .set(first_claims::claimed_at.eq(excluded(first_claims::claimed_at)));
        Prepared(remember).execute(self).await?;
        Ok(true)
    }

    async fn claim_delete_expired(&mut self, claim: &Claim, at: Time) -> Result<bool> {
        let expired = hostnames::verification_token
            .eq(&claim.token)
            .and(hostnames::state.eq(HostnameState::PendingDns))
            .and(hostnames::claim_expires_at.le(at));
        Ok(diesel::delete(hostnames::table.find(&claim.name).filter(expired)).execute(self).await? == 1)
    }

    async fn first_claims_purge(&mut self, before: Time) -> Result<usize> {
        purge_batch(self, PURGE_FIRST_CLAIMS, before).await
    }
}

/// Stores that the organization proved its ownership of a name. From now on, another organization needs a stronger
/// proof, and this organization may reserve the name again.
pub(super) async fn remember_proved(connection: &mut Connection, org: OrgId, name: &str, at: Time) -> Result<()> {
    let row = (former_hostnames::name.eq(name), former_hostnames::org_id.eq(org), former_hostnames::active_at.eq(at));
    let remember =
        diesel::insert_into(former_hostnames::table).values(row).on_conflict(former_hostnames::name).do_update().set((
            former_hostnames::org_id.eq(excluded(former_hostnames::org_id)),
            former_hostnames::active_at.eq(excluded(former_hostnames::active_at)),
        ));
    Prepared(remember).execute(connection).await?;
    diesel::delete(first_claims::table.find((org, name))).execute(connection).await?;
    Ok(())
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Selects hostnames with their projects, and with the organizations for which they were last active.
#[diesel::dsl::auto_type(no_type_alias)]
fn claims() -> _ {
    let row: AsSelect<ClaimRow, Pg> = ClaimRow::as_select();
    hostnames::table
        .inner_join(projects::table)
        .left_join(former_hostnames::table.on(former_hostnames::name.eq(hostnames::name)))
        .select((row, (projects::org_id, projects::name), former_hostnames::org_id.nullable()))
}

/// Sets the time of the next verification, unless the stored time differs from `previous`. [`RECORD_FAILURES`] does the
/// same.
#[diesel::dsl::auto_type(no_type_alias)]
fn replace_next_check_at(previous: Option<Time>, next: Time) -> _ {
    let is_unchanged = hostnames::next_check_at.eq(previous);
    let replacement = case_when(is_unchanged, next.into_sql::<Nullable<Timestamptz>>());
    hostnames::next_check_at.eq(replacement.otherwise(hostnames::next_check_at))
}

fn json(checks: &[Check]) -> Result<serde_json::Value> {
    serde_json::to_value(checks).map_err(Error::inconsistent)
}

impl TryFrom<ClaimTuple> for Claim {
    type Error = Error;

    fn try_from((row, (org, project_name), former): ClaimTuple) -> Result<Self> {
        let ClaimRow {
            name,
            project_id,
            state,
            verification_token,
            claim_expires_at,
            reserved_until,
            unverified_since,
            next_check_at,
        } = row;
        let token = verification_token.ok_or_else(|| Error::inconsistent(format!("{name} has no token")))?;
        let held_by_another_org = former.is_some_and(|former| former != org);
        Ok(Self {
            name,
            project: project_id,
            project_name,
            org,
            state,
            token,
            expires_at: claim_expires_at,
            reserved_until,
            unverified_since,
            held_by_another_org,
            next_check_at,
        })
    }
}
