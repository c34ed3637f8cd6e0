//! Access policies on Postgres.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{AccessMode, OrgId, ProjectId, Time, TokenHash};
use store::{Cached, Connection, Result};

use crate::model::HostnameState;
use crate::repository::{AccessRecord, AccessRepository, Door};
use crate::schema::{hostnames, projects, used_codes};

type Row = (AccessMode, Option<String>, Option<TokenHash>, Option<Time>, Time);

impl AccessRepository for Connection {
    async fn access_find(&mut self, project: ProjectId) -> Result<Option<AccessRecord>> {
        let columns = (
            projects::access_mode,
            projects::access_password,
            projects::bypass_hash,
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
            projects::access_password.eq(password),
            projects::access_changed_at.eq(at),
            projects::access_version.eq(projects::access_version + 1),
        ));
        Cached(set).execute(self).await?;
        Ok(())
    }

    async fn access_set_bypass(&mut self, project: ProjectId, key: Option<TokenHash>, at: Time) -> Result<()> {
        let set = diesel::update(projects::table.find(project)).set((
            projects::bypass_hash.eq(key),
            projects::bypass_created_at.eq(key.map(|_| at)),
            projects::access_changed_at.eq(at),
        ));
        Cached(set).execute(self).await?;
        Ok(())
    }

    async fn access_door(&mut self, hostname: &str) -> Result<Option<Door>> {
        let query = hostnames::table
            .find(hostname)
            .inner_join(projects::table)
            .filter(hostnames::state.eq(HostnameState::Active).and(projects::deleted_at.is_null()))
            .select((projects::id, projects::org_id, projects::access_mode));
        let found: Option<(ProjectId, OrgId, AccessMode)> = query.first(self).await.optional()?;
        Ok(found.map(|(project, org, mode)| Door { project, org, mode }))
    }

    async fn access_use_code(&mut self, code: uuid::Uuid, expires_at: Time, now: Time) -> Result<bool> {
        diesel::delete(used_codes::table.filter(used_codes::expires_at.le(now))).execute(self).await?;
        let row = (used_codes::id.eq(code), used_codes::expires_at.eq(expires_at));
        let used = diesel::insert_into(used_codes::table).values(row).on_conflict_do_nothing();
        Ok(Cached(used).execute(self).await? == 1)
    }
}
