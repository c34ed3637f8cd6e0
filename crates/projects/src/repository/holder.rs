//! The holder of a hostname, for a project that claims the same name.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, Time};
use store::{Connection, Error, Prepared, Result};

use super::claim::remember_proved;
use super::hostname::HstsRow;
use crate::model::{HostnameKind, HostnameState, Proof};
use crate::schema::{hostnames, projects};

/// The project that has a hostname, with its claim. Two equal values describe the same claim in the same state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub project: ProjectId,
    pub org: OrgId,
    pub kind: HostnameKind,
    pub state: HostnameState,
    /// The proof of the last verification that succeeded.
    pub proof: Option<Proof>,
    /// The token of the TXT record; `None` for a default hostname.
    pub token: Option<String>,
    pub claimed_at: Time,
    /// The time at which a pending claim expires.
    pub expires_at: Option<Time>,
    /// The time until which a pending claim reserves the name.
    pub reserved_until: Option<Time>,
}

/// The claims of a name, for a project that claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameStatus {
    /// The project that has the name. It can be the claiming project itself.
    pub holder: Option<Holder>,
    /// The time at which the organization first claimed the name, if it has not proved its ownership since.
    pub first_claimed_at: Option<Time>,
    /// Whether the name was last active for another organization.
    pub held_by_another_org: bool,
    /// The number of other custom hostnames of the project.
    pub custom: i64,
    /// The number of these hostnames that are pending.
    pub pending: i64,
}

/// A project that takes part in a takeover.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct Party {
    pub project: ProjectId,
    pub org: OrgId,
    pub name: String,
}

/// A verified claim that replaces the claim of another project.
#[derive(Debug, Clone, Copy)]
pub struct Takeover<'a> {
    pub name: &'a str,
    pub project: ProjectId,
    pub org: OrgId,
    /// The token of the TXT record that proves the ownership.
    pub token: &'a str,
    pub at: Time,
    pub next_check_at: Time,
}

/// The holders of hostnames on a [`store::Connection`].
pub trait HolderRepository {
    /// Returns the claims of a name. The counts `custom` and `pending` are reliable only while the caller holds the
    /// project's lock.
    async fn name_status(&mut self, org: OrgId, project: ProjectId, name: &str) -> Result<NameStatus>;

    /// Deletes a pending claim that no longer reserves its name; returns false when it changed concurrently.
    async fn claim_displace(&mut self, holder: &Holder, name: &str) -> Result<bool>;

    /// Locks the rows of two projects in the order of their ids, so that opposite takeovers cannot deadlock. Returns
    /// the projects that exist.
    async fn projects_lock(&mut self, projects: [ProjectId; 2]) -> Result<Vec<Party>>;

    /// Gives the hostname to another project, which proved its ownership by TXT; returns false when the holder changed
    /// concurrently.
    async fn claim_take_over(&mut self, takeover: &Takeover<'_>, holder: &Holder) -> Result<bool>;
}

impl Holder {
    /// Returns whether a claim of `project` can replace this claim without a proof. This is so if this claim has
    /// expired, or if it belongs to another project and no longer reserves the name.
    #[must_use]
    pub fn yields_to(&self, project: ProjectId, at: Time) -> bool {
        let is_over = |end: Option<Time>| end.is_some_and(|end| end <= at);
        let is_unreserved = self.project != project && is_over(self.reserved_until);
        self.state == HostnameState::PendingDns && (is_over(self.expires_at) || is_unreserved)
    }
}

#[derive(QueryableByName)]
struct StatusRow {
    #[diesel(sql_type = Nullable<Uuid>)]
    project_id: Option<ProjectId>,
    #[diesel(sql_type = Nullable<Uuid>)]
    org_id: Option<OrgId>,
    #[diesel(sql_type = Nullable<Text>)]
    kind: Option<HostnameKind>,
    #[diesel(sql_type = Nullable<Text>)]
    state: Option<HostnameState>,
    #[diesel(sql_type = Nullable<Text>)]
    proof: Option<Proof>,
    #[diesel(sql_type = Nullable<Text>)]
    verification_token: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    created_at: Option<Time>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    claim_expires_at: Option<Time>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    reserved_until: Option<Time>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    first_claimed_at: Option<Time>,
    #[diesel(sql_type = Bool)]
    held_by_another_org: bool,
    #[diesel(sql_type = BigInt)]
    custom: i64,
    #[diesel(sql_type = BigInt)]
    pending: i64,
}

/// Reads all claims of a name: `$1` is the name, `$2` the organization, `$3` the project. A single statement saves
/// round trips at every claim.
const STATUS: &str = "\
    SELECT h.project_id, p.org_id, h.kind, h.state, h.proof, h.verification_token, h.created_at, h.claim_expires_at, \
        h.reserved_until, f.claimed_at AS first_claimed_at, coalesce(o.org_id <> $2, false) AS held_by_another_org, \
        c.custom, c.pending \
    FROM (SELECT count(*) AS custom, count(*) FILTER (WHERE state = 'pending_dns') AS pending \
        FROM projects.hostnames WHERE project_id = $3 AND kind = 'custom' AND name <> $1) c \
    LEFT JOIN projects.hostnames h ON h.name = $1 \
    LEFT JOIN projects.projects p ON p.id = h.project_id \
    LEFT JOIN projects.first_claims f ON f.org_id = $2 AND f.name = $1 \
    LEFT JOIN projects.former_hostnames o ON o.name = $1";

impl HolderRepository for Connection {
    async fn name_status(&mut self, org: OrgId, project: ProjectId, name: &str) -> Result<NameStatus> {
        let query = diesel::sql_query(STATUS).bind::<Text, _>(name).bind::<Uuid, _>(org).bind::<Uuid, _>(project);
        Prepared(query).get_result::<StatusRow>(self).await?.try_into()
    }

    async fn claim_displace(&mut self, holder: &Holder, name: &str) -> Result<bool> {
        let same = hostnames::project_id
            .eq(holder.project)
            .and(hostnames::state.eq(HostnameState::PendingDns))
            .and(hostnames::kind.eq(HostnameKind::Custom));
        Ok(diesel::delete(hostnames::table.find(name).filter(same)).execute(self).await? == 1)
    }

    async fn projects_lock(&mut self, projects: [ProjectId; 2]) -> Result<Vec<Party>> {
        let query = projects::table
            .filter(projects::id.eq_any(projects).and(projects::deleted_at.is_null()))
            .order(projects::id)
            .select((projects::id, projects::org_id, projects::name))
            .for_update();
        Ok(query.load(self).await?)
    }

    async fn claim_take_over(&mut self, takeover: &Takeover<'_>, holder: &Holder) -> Result<bool> {
        let Takeover { name, project, org, token, at, next_check_at } = *takeover;
        let same = hostnames::project_id
            .eq(holder.project)
            .and(hostnames::kind.eq(HostnameKind::Custom))
            .and(hostnames::state.eq(holder.state))
            .and(hostnames::proof.is_not_distinct_from(holder.proof));
        let change = diesel::update(hostnames::table.find(name).filter(same)).set((
            hostnames::project_id.eq(project),
            hostnames::state.eq(HostnameState::Active),
            hostnames::verification_token.eq(token),
            hostnames::last_error.eq(None::<String>),
            hostnames::created_at.eq(at),
            hostnames::verified_at.eq(at),
            hostnames::proof.eq(Proof::Txt),
            hostnames::checks.eq(None::<serde_json::Value>),
            hostnames::next_check_at.eq(next_check_at),
            hostnames::unverified_since.eq(None::<Time>),
            hostnames::claim_expires_at.eq(None::<Time>),
            hostnames::reserved_until.eq(None::<Time>),
            HstsRow::OFF,
        ));
        if Prepared(change).execute(self).await? == 0 {
            return Ok(false);
        }
        remember_proved(self, org, name, at).await?;
        Ok(true)
    }
}

impl TryFrom<StatusRow> for NameStatus {
    type Error = Error;

    fn try_from(row: StatusRow) -> Result<Self> {
        let StatusRow { first_claimed_at, held_by_another_org, custom, pending, .. } = row;
        let holder = match (row.project_id, row.org_id, row.kind, row.state, row.created_at) {
            (None, ..) => None,
            (Some(project), Some(org), Some(kind), Some(state), Some(claimed_at)) => Some(Holder {
                project,
                org,
                kind,
                state,
                proof: row.proof,
                token: row.verification_token,
                claimed_at,
                expires_at: row.claim_expires_at,
                reserved_until: row.reserved_until,
            }),
            (Some(project), ..) => return Err(Error::inconsistent(format!("a hostname of {project} is incomplete"))),
        };
        Ok(Self { holder, first_claimed_at, held_by_another_org, custom, pending })
    }
}
