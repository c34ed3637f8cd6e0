//! Access policies.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{AccessMode, OrgId, ProjectId, Role, Time, TokenHash};
use store::{Connection, Prepared, Result};

use crate::model::HostnameState;
use crate::schema::{hostnames, projects, used_access_codes};

/// The stored access policy of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRecord {
    pub mode: AccessMode,
    /// The password's Argon2id hash, as a PHC string.
    pub password: Option<String>,
    pub bypass: Option<TokenHash>,
    pub changed_at: Time,
}

/// The project that an active hostname serves, with its access mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtectedHostname {
    pub project: ProjectId,
    pub org: OrgId,
    pub mode: AccessMode,
}

impl ProtectedHostname {
    /// Returns the minimum role for access. In a mode that also admits visitors outside the organization, every role is
    /// enough (contract section 5).
    #[must_use]
    pub fn min_role(&self) -> Role {
        if self.mode == AccessMode::Org { Role::Member } else { Role::Viewer }
    }
}

/// Access policies on a [`store::Connection`].
pub trait AccessRepository {
    /// Returns a project's policy.
    async fn access_find(&mut self, project: ProjectId) -> Result<Option<AccessRecord>>;

    /// Sets the mode and the password.
    async fn access_set(
        &mut self,
        project: ProjectId,
        mode: AccessMode,
        password: Option<&str>,
        at: Time,
    ) -> Result<()>;

    /// Sets or removes the bypass key.
    async fn access_set_bypass(&mut self, project: ProjectId, key: Option<TokenHash>, at: Time) -> Result<()>;

    /// Returns the project that an active hostname serves.
    async fn access_hostname(&mut self, hostname: &str) -> Result<Option<ProtectedHostname>>;

    /// Marks an access code as used; returns false when it was used before. Purges expired codes.
    async fn access_use_code(&mut self, code: uuid::Uuid, expires_at: Time, now: Time) -> Result<bool>;
}

type Row = (AccessMode, Option<String>, Option<TokenHash>, Option<Time>, Time);

impl AccessRepository for Connection {
    async fn access_find(&mut self, project: ProjectId) -> Result<Option<AccessRecord>> {
        let columns = (
            projects::access_mode,
            projects::access_password_hash,
            projects::bypass_key_hash,
            projects::access_changed_at,
            projects::created_at,
        );
        let query = projects::table.find(project).filter(projects::deleted_at.is_null()).select(columns);
        let found: Option<Row> = query.first(self).await.optional()?;
        Ok(found.map(|(mode, password, bypass, changed_at, created_at)| AccessRecord {
            mode,
            password,
            bypass,
            changed_at: changed_at.unwrap_or(created_at),
        }))
    }

    async fn access_set(
        &mut self,
        project: ProjectId,
        mode: AccessMode,
        password: Option<&str>,
        at: Time,
    ) -> Result<()> {
        let set = diesel::update(projects::table.find(project)).set((
            projects::access_mode.eq(mode),
            projects::access_password_hash.eq(password),
            projects::access_changed_at.eq(at),
            projects::access_version.eq(projects::access_version + 1),
        ));
        Prepared(set).execute(self).await?;
        Ok(())
    }

    async fn access_set_bypass(&mut self, project: ProjectId, key: Option<TokenHash>, at: Time) -> Result<()> {
        let set = diesel::update(projects::table.find(project))
            .set((projects::bypass_key_hash.eq(key), projects::access_changed_at.eq(at)));
        Prepared(set).execute(self).await?;
        Ok(())
    }

    async fn access_hostname(&mut self, hostname: &str) -> Result<Option<ProtectedHostname>> {
        let query = hostnames::table
            .find(hostname)
            .inner_join(projects::table)
            .filter(hostnames::state.eq(HostnameState::Active).and(projects::deleted_at.is_null()))
            .select((projects::id, projects::org_id, projects::access_mode));
        let found: Option<(ProjectId, OrgId, AccessMode)> = query.first(self).await.optional()?;
        Ok(found.map(|(project, org, mode)| ProtectedHostname { project, org, mode }))
    }

    async fn access_use_code(&mut self, code: uuid::Uuid, expires_at: Time, now: Time) -> Result<bool> {
        diesel::delete(used_access_codes::table.filter(used_access_codes::expires_at.le(now))).execute(self).await?;
        let row = (used_access_codes::id.eq(code), used_access_codes::expires_at.eq(expires_at));
        let used = diesel::insert_into(used_access_codes::table).values(row).on_conflict_do_nothing();
        Ok(Prepared(used).execute(self).await? == 1)
    }
}
