//! The hostnames of a project.

use diesel::dsl::AsSelect;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, Time};
use store::{Connection, Error, Prepared, Result};

use crate::model::{Hostname, HostnameKind, HostnameState, HostnameTls, Hsts, TlsState};
use crate::schema::{former_hostnames, hostname_tls, hostnames, projects};

/// Hostnames on a [`store::Connection`].
pub trait HostnameRepository {
    /// Lists the hostnames of a project, the default hostname first.
    async fn hostname_list(&self, project: ProjectId) -> Result<Vec<Hostname>>;

    /// Finds a hostname of a project.
    async fn hostname_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Hostname>>;

    /// Sets or clears the error message of an active hostname.
    async fn hostname_set_error(&mut self, project: ProjectId, name: &str, problem: Option<&str>) -> Result<()>;

    /// Sets or removes `Strict-Transport-Security` of a hostname.
    async fn hostname_set_hsts(&mut self, project: ProjectId, name: &str, hsts: Option<Hsts>) -> Result<()>;

    /// Removes a custom hostname.
    async fn hostname_delete(&mut self, project: ProjectId, name: &str) -> Result<()>;
}

/// A hostname. The query must join `projects`, `hostname_tls` and `former_hostnames`.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hostnames)]
pub(super) struct HostnameRow {
    name: String,
    kind: HostnameKind,
    state: HostnameState,
    verification_token: Option<String>,
    last_error: Option<String>,
    checks: Option<serde_json::Value>,
    created_at: Time,
    verified_at: Option<Time>,
    #[diesel(embed)]
    hsts: HstsRow,
    #[diesel(embed)]
    tls: Option<TlsRow>,
    #[diesel(select_expression = projects::org_id)]
    org_id: OrgId,
    /// The organization for which the hostname was last active.
    #[diesel(select_expression = former_hostnames::org_id.nullable())]
    former_org_id: Option<OrgId>,
}

#[derive(Clone, Copy, Queryable, Selectable, AsChangeset)]
#[diesel(table_name = hostnames, treat_none_as_null = true)]
pub(super) struct HstsRow {
    hsts_max_age: Option<i32>,
    hsts_include_subdomains: bool,
    hsts_preload: bool,
}

/// The certificate of a hostname.
#[derive(Queryable, Selectable)]
#[diesel(table_name = hostname_tls)]
pub(super) struct TlsRow {
    state: TlsState,
    expires_at: Option<Time>,
    last_error: Option<String>,
}

impl HostnameRepository for Connection {
    async fn hostname_list(&self, project: ProjectId) -> Result<Vec<Hostname>> {
        let query = select_hostnames()
            .filter(hostnames::project_id.eq(project))
            .order((hostnames::kind.desc(), hostnames::name));
        query.load::<HostnameRow>(&mut &*self).await?.into_iter().map(Hostname::try_from).collect()
    }

    async fn hostname_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Hostname>> {
        let query = select_hostnames().filter(hostnames::name.eq(name).and(hostnames::project_id.eq(project)));
        let found = query.first::<HostnameRow>(self).await.optional()?;
        found.map(Hostname::try_from).transpose()
    }

    async fn hostname_set_error(&mut self, project: ProjectId, name: &str, problem: Option<&str>) -> Result<()> {
        let active = hostnames::project_id.eq(project).and(hostnames::state.eq(HostnameState::Active));
        let own = hostnames::table.find(name).filter(active);
        Prepared(diesel::update(own).set(hostnames::last_error.eq(problem))).execute(self).await?;
        Ok(())
    }

    async fn hostname_set_hsts(&mut self, project: ProjectId, name: &str, hsts: Option<Hsts>) -> Result<()> {
        let own = hostnames::table.find(name).filter(hostnames::project_id.eq(project));
        Prepared(diesel::update(own).set(HstsRow::from(hsts))).execute(self).await?;
        Ok(())
    }

    async fn hostname_delete(&mut self, project: ProjectId, name: &str) -> Result<()> {
        let custom = hostnames::project_id.eq(project).and(hostnames::kind.eq(HostnameKind::Custom));
        diesel::delete(hostnames::table.find(name).filter(custom)).execute(self).await?;
        Ok(())
    }
}

/// Selects hostnames with their certificates, and with the organizations for which they were last active.
#[diesel::dsl::auto_type(no_type_alias)]
fn select_hostnames() -> _ {
    let row: AsSelect<HostnameRow, Pg> = HostnameRow::as_select();
    hostnames::table
        .inner_join(projects::table)
        .left_join(hostname_tls::table.on(hostname_tls::name.eq(hostnames::name)))
        .left_join(former_hostnames::table.on(former_hostnames::name.eq(hostnames::name)))
        .select(row)
}

impl TryFrom<HostnameRow> for Hostname {
    type Error = Error;

    fn try_from(row: HostnameRow) -> Result<Self> {
        let HostnameRow { checks, tls, .. } = row;
        let checks = checks.map(serde_json::from_value).transpose().map_err(Error::inconsistent)?.unwrap_or_default();
        let tls = tls.map_or(HostnameTls::OFF, |TlsRow { state, expires_at, last_error }| HostnameTls {
            state,
            expires_at,
            last_error,
        });
        Ok(Self {
            name: row.name,
            kind: row.kind,
            state: row.state,
            verify: Vec::new(),
            verification_token: row.verification_token,
            last_error: row.last_error,
            checks,
            created_at: row.created_at,
            verified_at: row.verified_at,
            tls,
            hsts: row.hsts.into(),
            held_by_another_org: row.former_org_id.is_some_and(|former| former != row.org_id),
        })
    }
}

impl HstsRow {
    /// No `Strict-Transport-Security`.
    pub(super) const OFF: Self = Self { hsts_max_age: None, hsts_include_subdomains: false, hsts_preload: false };
}

impl From<Option<Hsts>> for HstsRow {
    fn from(hsts: Option<Hsts>) -> Self {
        hsts.map_or(Self::OFF, |Hsts { max_age, include_sub_domains, preload }| Self {
            hsts_max_age: Some(max_age),
            hsts_include_subdomains: include_sub_domains,
            hsts_preload: preload,
        })
    }
}

impl From<HstsRow> for Option<Hsts> {
    fn from(row: HstsRow) -> Self {
        let HstsRow { hsts_max_age, hsts_include_subdomains: include_sub_domains, hsts_preload: preload } = row;
        hsts_max_age.map(|max_age| Hsts { max_age, include_sub_domains, preload })
    }
}
