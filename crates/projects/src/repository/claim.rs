//! Claims of hostnames and their proofs.

use diesel::dsl::AsSelect;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::sql_types::{Array, Jsonb, Nullable, Text, Timestamptz};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, Time};
use store::{Cached, Connection, Error, Result};

use crate::model::{Check, HostnameKind, HostnameState, Proof};
use crate::schema::{former_hostnames, hostnames, projects};

/// A claim to write.
#[derive(Debug, Clone, Copy)]
pub struct NewClaim<'a> {
    pub name: &'a str,
    pub project: ProjectId,
    /// What a TXT record has to say.
    pub token: &'a str,
    pub at: Time,
    pub lapses_at: Time,
}

/// A custom name that a project claims or has, with what its proof is held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub name: String,
    pub project: ProjectId,
    pub project_name: String,
    pub org: OrgId,
    pub state: HostnameState,
    pub token: String,
    pub lapses_at: Option<Time>,
    /// Since when it has been active without a proof.
    pub lost_at: Option<Time>,
    /// It was active for another organization last.
    pub was_another_s: bool,
}

/// A look at a claim that found no proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unproved {
    pub name: String,
    /// Tells the claim from a later one of the same name.
    pub token: String,
    pub error: Option<String>,
    pub checks: Vec<Check>,
    /// When to look again.
    pub check_at: Time,
}

impl Unproved {
    pub(crate) fn new(claim: &Claim, error: Option<String>, checks: Vec<Check>, check_at: Time) -> Self {
        Self { name: claim.name.clone(), token: claim.token.clone(), error, checks, check_at }
    }
}

/// Claims of hostnames on a [`store::Connection`].
pub trait ClaimRepository {
    /// Writes a claim; false when the name is in use. A claim that nobody proved in time is in nobody's way.
    async fn hostname_claim(&mut self, claim: &NewClaim<'_>) -> Result<bool>;

    /// A custom hostname as a claim.
    async fn claim_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Claim>>;

    /// Claims that are due, so many at once, left alone by everybody else until the lease ends.
    async fn claims_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Claim>>;

    /// Serves a pending name from now on; false when it is pending no longer.
    async fn claim_activate(&mut self, claim: &Claim, proof: Proof, at: Time, check_at: Time) -> Result<bool>;

    /// Notes that an active name still has a proof.
    async fn claim_reproved(&mut self, claim: &Claim, proof: Proof, check_at: Time) -> Result<()>;

    /// Notes what was looked up and seen, and when to look again. Without an error the one there is stays.
    async fn claims_unproved(&mut self, unproved: &[Unproved]) -> Result<()>;

    /// Notes that an active name has lost its proof; false when it had before.
    async fn claim_lost(&mut self, unproved: &Unproved, at: Time) -> Result<bool>;

    /// Makes an active name a claim again; false when it is none.
    async fn claim_detach(&mut self, unproved: &Unproved, lapses_at: Time, check_at: Time) -> Result<bool>;

    /// Ends a pending claim whose time is over; false when it was proved or ended meanwhile.
    async fn claim_lapse(&mut self, claim: &Claim, at: Time) -> Result<bool>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = hostnames)]
struct ClaimRow {
    name: String,
    project_id: ProjectId,
    state: HostnameState,
    verification_token: Option<String>,
    lapses_at: Option<Time>,
    lost_at: Option<Time>,
}

type Found = (ClaimRow, (OrgId, String), Option<OrgId>);

/// One statement for all of them: the texts, tokens and times of each in arrays of the same length. No explanation is
/// written on a name that was proved while its records were looked up.
const UNPROVED: &str = "\
    UPDATE projects.hostnames h \
    SET checks = u.checks, check_at = u.check_at, last_error = coalesce(u.error, h.last_error) \
    FROM unnest($1, $2, $3, $4, $5) AS u (name, token, error, checks, check_at) \
    WHERE h.name = u.name AND h.verification_token = u.token \
        AND (u.error IS NULL OR h.state = 'pending_dns' OR h.lost_at IS NOT NULL)";

impl ClaimRepository for Connection {
    async fn hostname_claim(&mut self, claim: &NewClaim<'_>) -> Result<bool> {
        let lapsed = hostnames::state.eq(HostnameState::PendingDns).and(hostnames::lapses_at.le(claim.at));
        diesel::delete(hostnames::table.find(claim.name).filter(lapsed)).execute(self).await?;
        let row = (
            hostnames::name.eq(claim.name),
            hostnames::project_id.eq(claim.project),
            hostnames::kind.eq(HostnameKind::Custom),
            hostnames::state.eq(HostnameState::PendingDns),
            hostnames::verification_token.eq(claim.token),
            hostnames::created_at.eq(claim.at),
            hostnames::check_at.eq(claim.at),
            hostnames::lapses_at.eq(claim.lapses_at),
        );
        let insert = diesel::insert_into(hostnames::table).values(row).on_conflict(hostnames::name).do_nothing();
        Ok(Cached(insert).execute(self).await? == 1)
    }

    async fn claim_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Claim>> {
        let own = hostnames::project_id.eq(project).and(hostnames::kind.eq(HostnameKind::Custom));
        let found = claims().filter(hostnames::name.eq(name)).filter(own).first::<Found>(self).await.optional()?;
        found.map(Claim::try_from).transpose()
    }

    async fn claims_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Claim>> {
        // `ARRAY(…)`, so that the limit is taken once.
        let take = diesel::sql_query(
            "UPDATE projects.hostnames SET check_at = $2 WHERE name = ANY (ARRAY( \
                SELECT name FROM projects.hostnames WHERE kind = 'custom' AND check_at <= $1 \
                ORDER BY check_at LIMIT $3 FOR UPDATE SKIP LOCKED)) RETURNING name",
        );
        let take =
            take.bind::<Timestamptz, _>(now).bind::<Timestamptz, _>(lease).bind::<diesel::sql_types::BigInt, _>(most);
        let taken: Vec<Name> = Cached(take).load(self).await?;
        let names: Vec<String> = taken.into_iter().map(|row| row.name).collect();
        let found = claims().filter(hostnames::name.eq_any(names)).load::<Found>(self).await?;
        found.into_iter().map(Claim::try_from).collect()
    }

    async fn claim_activate(&mut self, claim: &Claim, proof: Proof, at: Time, check_at: Time) -> Result<bool> {
        let pending = hostnames::verification_token
            .eq(&claim.token)
            .and(hostnames::state.eq(HostnameState::PendingDns))
            .and(hostnames::project_id.eq(claim.project));
        let activate = diesel::update(hostnames::table.find(&claim.name).filter(pending)).set((
            hostnames::state.eq(HostnameState::Active),
            hostnames::proof.eq(proof),
            hostnames::verified_at.eq(at),
            hostnames::check_at.eq(check_at),
            hostnames::last_error.eq(None::<String>),
            hostnames::checks.eq(None::<serde_json::Value>),
            hostnames::lapses_at.eq(None::<Time>),
        ));
        if Cached(activate).execute(self).await? == 0 {
            return Ok(false);
        }
        let row = (
            former_hostnames::name.eq(&claim.name),
            former_hostnames::org_id.eq(claim.org),
            former_hostnames::active_at.eq(at),
        );
        let remember = diesel::insert_into(former_hostnames::table)
            .values(row)
            .on_conflict(former_hostnames::name)
            .do_update()
            .set((
                former_hostnames::org_id.eq(excluded(former_hostnames::org_id)),
                former_hostnames::active_at.eq(excluded(former_hostnames::active_at)),
            ));
        Cached(remember).execute(self).await?;
        Ok(true)
    }

    async fn claim_reproved(&mut self, claim: &Claim, proof: Proof, check_at: Time) -> Result<()> {
        let same = hostnames::verification_token.eq(&claim.token).and(hostnames::state.eq(HostnameState::Active));
        let note = diesel::update(hostnames::table.find(&claim.name).filter(same)).set((
            hostnames::proof.eq(proof),
            hostnames::check_at.eq(check_at),
            hostnames::lost_at.eq(None::<Time>),
            hostnames::last_error.eq(None::<String>),
            hostnames::checks.eq(None::<serde_json::Value>),
        ));
        Cached(note).execute(self).await?;
        Ok(())
    }

    async fn claims_unproved(&mut self, unproved: &[Unproved]) -> Result<()> {
        if unproved.is_empty() {
            return Ok(());
        }
        let checks = unproved.iter().map(|it| json(&it.checks)).collect::<Result<Vec<_>>>()?;
        let note = diesel::sql_query(UNPROVED)
            .bind::<Array<Text>, _>(unproved.iter().map(|it| it.name.as_str()).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(unproved.iter().map(|it| it.token.as_str()).collect::<Vec<_>>())
            .bind::<Array<Nullable<Text>>, _>(unproved.iter().map(|it| it.error.as_deref()).collect::<Vec<_>>())
            .bind::<Array<Jsonb>, _>(checks)
            .bind::<Array<Timestamptz>, _>(unproved.iter().map(|it| it.check_at).collect::<Vec<_>>());
        Cached(note).execute(self).await?;
        Ok(())
    }

    async fn claim_lost(&mut self, unproved: &Unproved, at: Time) -> Result<bool> {
        let had = hostnames::verification_token
            .eq(&unproved.token)
            .and(hostnames::state.eq(HostnameState::Active))
            .and(hostnames::lost_at.is_null());
        let lose = diesel::update(hostnames::table.find(&unproved.name).filter(had)).set((
            hostnames::lost_at.eq(at),
            hostnames::last_error.eq(&unproved.error),
            hostnames::checks.eq(json(&unproved.checks)?),
            hostnames::check_at.eq(unproved.check_at),
        ));
        Ok(Cached(lose).execute(self).await? == 1)
    }

    async fn claim_detach(&mut self, unproved: &Unproved, lapses_at: Time, check_at: Time) -> Result<bool> {
        let lost = hostnames::verification_token
            .eq(&unproved.token)
            .and(hostnames::state.eq(HostnameState::Active))
            .and(hostnames::lost_at.is_not_null());
        let detach = diesel::update(hostnames::table.find(&unproved.name).filter(lost)).set((
            hostnames::state.eq(HostnameState::PendingDns),
            hostnames::proof.eq(None::<Proof>),
            hostnames::verified_at.eq(None::<Time>),
            hostnames::lost_at.eq(None::<Time>),
            hostnames::last_error.eq(&unproved.error),
            hostnames::checks.eq(json(&unproved.checks)?),
            hostnames::check_at.eq(check_at),
            hostnames::lapses_at.eq(lapses_at),
        ));
        Ok(Cached(detach).execute(self).await? == 1)
    }

    async fn claim_lapse(&mut self, claim: &Claim, at: Time) -> Result<bool> {
        let over = hostnames::verification_token
            .eq(&claim.token)
            .and(hostnames::state.eq(HostnameState::PendingDns))
            .and(hostnames::lapses_at.le(at));
        Ok(diesel::delete(hostnames::table.find(&claim.name).filter(over)).execute(self).await? == 1)
    }
}

#[derive(QueryableByName)]
struct Name {
    #[diesel(sql_type = Text)]
    name: String,
}

/// Names with what their projects are called, and who had them before.
#[diesel::dsl::auto_type(no_type_alias)]
fn claims() -> _ {
    let row: AsSelect<ClaimRow, Pg> = ClaimRow::as_select();
    hostnames::table
        .inner_join(projects::table)
        .left_join(former_hostnames::table.on(former_hostnames::name.eq(hostnames::name)))
        .select((row, (projects::org_id, projects::name), former_hostnames::org_id.nullable()))
}

fn json(checks: &[Check]) -> Result<serde_json::Value> {
    serde_json::to_value(checks).map_err(Error::inconsistent)
}

impl TryFrom<Found> for Claim {
    type Error = Error;

    fn try_from((row, (org, project_name), former): Found) -> Result<Self> {
        let ClaimRow { name, project_id, state, verification_token, lapses_at, lost_at } = row;
        let token = verification_token.ok_or_else(|| Error::inconsistent(format!("{name} has no token")))?;
        let was_another_s = former.is_some_and(|former| former != org);
        Ok(Self { name, project: project_id, project_name, org, state, token, lapses_at, lost_at, was_another_s })
    }
}
