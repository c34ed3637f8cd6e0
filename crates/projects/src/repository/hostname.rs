//! The hostnames of a project.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{ProjectId, Time};
use store::{Connection, Error, Prepared, Result};

use crate::model::{Hostname, HostnameKind, HostnameState};
use crate::schema::hostnames;

/// Hostnames on a [`store::Connection`].
pub trait HostnameRepository {
    /// Lists the hostnames of a project, the default hostname first.
    async fn hostname_list(&mut self, project: ProjectId) -> Result<Vec<Hostname>>;

    /// Finds a hostname of a project.
    async fn hostname_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Hostname>>;

    /// Sets or clears the error message of an active hostname.
    async fn hostname_set_error(&mut self, project: ProjectId, name: &str, problem: Option<&str>) -> Result<()>;

    /// Removes a custom hostname.
    async fn hostname_delete(&mut self, project: ProjectId, name: &str) -> Result<()>;
}

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
}

impl HostnameRepository for Connection {
    async fn hostname_list(&mut self, project: ProjectId) -> Result<Vec<Hostname>> {
        let query = hostnames::table
            .filter(hostnames::project_id.eq(project))
            .order((hostnames::kind.desc(), hostnames::name))
            .select(HostnameRow::as_select());
        query.load::<HostnameRow>(self).await?.into_iter().map(Hostname::try_from).collect()
    }

    async fn hostname_find(&mut self, project: ProjectId, name: &str) -> Result<Option<Hostname>> {
        let query = hostnames::table.find(name).filter(hostnames::project_id.eq(project));
        let found: Option<HostnameRow> = query.select(HostnameRow::as_select()).first(self).await.optional()?;
        found.map(Hostname::try_from).transpose()
    }

    async fn hostname_set_error(&mut self, project: ProjectId, name: &str, problem: Option<&str>) -> Result<()> {
        let active = hostnames::project_id.eq(project).and(hostnames::state.eq(HostnameState::Active));
        let own = hostnames::table.find(name).filter(active);
        Prepared(diesel::update(own).set(hostnames::last_error.eq(problem))).execute(self).await?;
        Ok(())
    }

    async fn hostname_delete(&mut self, project: ProjectId, name: &str) -> Result<()> {
        let custom = hostnames::project_id.eq(project).and(hostnames::kind.eq(HostnameKind::Custom));
        diesel::delete(hostnames::table.find(name).filter(custom)).execute(self).await?;
        Ok(())
    }
}

impl TryFrom<HostnameRow> for Hostname {
    type Error = Error;

    fn try_from(row: HostnameRow) -> Result<Self> {
        let HostnameRow { name, kind, state, verification_token, last_error, checks, created_at, verified_at } = row;
        let checks = checks.map(serde_json::from_value).transpose().map_err(Error::inconsistent)?.unwrap_or_default();
        let verify = Vec::new();
        Ok(Self { name, kind, state, verify, verification_token, last_error, checks, created_at, verified_at })
    }
}
