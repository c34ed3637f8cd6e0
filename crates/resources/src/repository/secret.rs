//! Secrets.

use std::collections::BTreeMap;

use diesel::dsl::sum;
use diesel::prelude::*;
use diesel::sql_types::Text;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{OrgId, Paging, Plan, ProjectId, Time, UserId};
use store::{Connection, Prepared, Result};

use crate::model::{SecretMeta, SecretName};
use crate::schema::{project_plans, secret_sets, secrets};

/// A sealed secret. Its `Debug` implementation does not show the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRecord {
    pub meta: SecretMeta,
    /// The revision of the project's secrets at which the value was set.
    pub revision: i64,
    pub value: Sealed,
    /// The size of the plaintext.
    pub size_bytes: i32,
}

/// The current version of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretVersion {
    pub version: i32,
    pub size_bytes: i32,
}

/// A secret of a project. A project whose last secret was deleted has one entry without a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedSecret {
    pub project: ProjectId,
    /// The revision of the project's secrets.
    pub revision: i64,
    pub record: Option<SecretRecord>,
}

/// Secrets on a [`store::Connection`].
pub trait SecretRepository {
    /// Increases the revision of a project's secrets and returns it. Locks the secrets until the transaction ends.
    async fn secret_lock(&mut self, project: ProjectId) -> Result<i64>;

    /// Returns the version of each secret of a project.
    async fn secret_versions(&mut self, project: ProjectId) -> Result<BTreeMap<SecretName, SecretVersion>>;

    /// Returns the size of the secrets that count towards the same total as those of the project: those of the free
    /// organizations with its creator, or those of its organization if that has a paid plan or its creator was deleted.
    /// Until the transaction ends, other callers of this function wait.
    ///
    /// Reads at most 150,000 rows with the default limits: 250 free organizations of a creator, with three projects of 200
    /// secrets each. A paid organization has 20,000.
    async fn secret_lock_total(&mut self, project: ProjectId) -> Result<i64>;

    /// Lists the secrets of a project by name.
    async fn secret_list(&mut self, project: ProjectId, paging: &Paging<String>) -> Result<Vec<SecretMeta>>;

    /// Inserts or replaces secrets of a project whose secrets are locked.
    async fn secret_upsert(&mut self, project: ProjectId, secrets: Vec<SecretRecord>) -> Result<()>;

    /// Deletes secrets of a project whose secrets are locked, and returns their number.
    async fn secret_delete(&mut self, project: ProjectId, names: &[SecretName]) -> Result<usize>;

    /// Deletes all secrets of a deleted project. Waits for changes in progress.
    async fn secret_delete_all(&mut self, project: ProjectId) -> Result<()>;

    /// Returns the sealed secrets of these projects, ordered by project, in one snapshot.
    async fn secret_load(&mut self, projects: &[ProjectId]) -> Result<Vec<LoadedSecret>>;
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = secrets)]
struct MetaRow {
    name: SecretName,
    version: i32,
    updated_at: Time,
    updated_by: UserId,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = secrets)]
struct SecretRow {
    #[diesel(embed)]
    meta: MetaRow,
    revision: i64,
    key_id: String,
    sealed: Vec<u8>,
    size_bytes: i32,
}

/// Takes an advisory lock, because this context has no row for a user.
const LOCK_TOTAL: &str = "SELECT pg_advisory_xact_lock(hashtextextended('resources.secrets ' || $1, 0))";

impl SecretRepository for Connection {
    async fn secret_lock(&mut self, project: ProjectId) -> Result<i64> {
        let upsert = diesel::insert_into(secret_sets::table)
            .values((secret_sets::project_id.eq(project), secret_sets::revision.eq(1)))
            .on_conflict(secret_sets::project_id)
            .do_update()
            .set(secret_sets::revision.eq(secret_sets::revision + 1))
            .returning(secret_sets::revision);
        Ok(Prepared(upsert).get_result(self).await?)
    }

    async fn secret_versions(&mut self, project: ProjectId) -> Result<BTreeMap<SecretName, SecretVersion>> {
        let query = secrets::table.filter(secrets::project_id.eq(project));
        let rows: Vec<(SecretName, i32, i32)> =
            query.select((secrets::name, secrets::version, secrets::size_bytes)).load(self).await?;
        Ok(rows.into_iter().map(|(name, version, size_bytes)| (name, SecretVersion { version, size_bytes })).collect())
    }

    async fn secret_lock_total(&mut self, project: ProjectId) -> Result<i64> {
        let columns = (project_plans::org_id, project_plans::plan, project_plans::created_by);
        let owner = project_plans::table.find(project).select(columns);
        let Some((org, plan, creator)) = owner.first::<(OrgId, Plan, Option<UserId>)>(self).await.optional()? else {
            return Ok(0);
        };
        // The creator of an organization with a paid plan may have left it.
        let creator = creator.filter(|_| plan == Plan::Free);
        let owner = creator.map_or_else(|| org.to_string(), |user| user.to_string());
        Prepared(diesel::sql_query(LOCK_TOTAL).bind::<Text, _>(owner)).execute(self).await?;
        let query = secrets::table
            .inner_join(project_plans::table.on(project_plans::id.eq(secrets::project_id)))
            .select(sum(secrets::size_bytes))
            .into_boxed();
        let query = match creator {
            Some(user) => query.filter(project_plans::created_by.eq(user)).filter(project_plans::plan.eq(Plan::Free)),
            None => query.filter(project_plans::org_id.eq(org)),
        };
        Ok(query.first::<Option<i64>>(self).await?.unwrap_or(0))
    }

    async fn secret_list(&mut self, project: ProjectId, paging: &Paging<String>) -> Result<Vec<SecretMeta>> {
        // Names are not empty, so the empty text is before all of them.
        let after = paging.after.as_deref().unwrap_or_default();
        let page = secrets::project_id.eq(project).and(secrets::name.gt(after));
        let query = secrets::table.filter(page).order(secrets::name).limit(paging.fetch());
        let rows = query.select(MetaRow::as_select()).load(self).await?;
        Ok(rows.into_iter().map(SecretMeta::from).collect())
    }

    async fn secret_upsert(&mut self, project: ProjectId, records: Vec<SecretRecord>) -> Result<()> {
        let row = |SecretRecord { meta, revision, value, size_bytes }| {
            let SecretMeta { name, version, updated_at, updated_by } = meta;
            let Sealed { key_id, bytes } = value;
            (
                secrets::project_id.eq(project),
                secrets::name.eq(name),
                secrets::version.eq(version),
                secrets::revision.eq(revision),
                secrets::key_id.eq(key_id),
                secrets::sealed.eq(bytes),
                secrets::size_bytes.eq(size_bytes),
                secrets::updated_at.eq(updated_at),
                secrets::updated_by.eq(updated_by),
            )
        };
        diesel::insert_into(secrets::table)
            .values(records.into_iter().map(row).collect::<Vec<_>>())
            .on_conflict((secrets::project_id, secrets::name))
            .do_update()
            .set((
                secrets::version.eq(excluded(secrets::version)),
                secrets::revision.eq(excluded(secrets::revision)),
                secrets::key_id.eq(excluded(secrets::key_id)),
                secrets::sealed.eq(excluded(secrets::sealed)),
                secrets::size_bytes.eq(excluded(secrets::size_bytes)),
                secrets::updated_at.eq(excluded(secrets::updated_at)),
                secrets::updated_by.eq(excluded(secrets::updated_by)),
            ))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn secret_delete(&mut self, project: ProjectId, names: &[SecretName]) -> Result<usize> {
        let deleted = secrets::table.filter(secrets::project_id.eq(project).and(secrets::name.eq_any(names)));
        Ok(diesel::delete(deleted).execute(self).await?)
    }

    async fn secret_delete_all(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(secret_sets::table.find(project)).execute(self).await?;
        Ok(())
    }

    async fn secret_load(&mut self, projects: &[ProjectId]) -> Result<Vec<LoadedSecret>> {
        let rows = secret_sets::table
            .left_join(secrets::table)
            .filter(secret_sets::project_id.eq_any(projects))
            .order(secret_sets::project_id)
            .select((secret_sets::project_id, secret_sets::revision, Option::<SecretRow>::as_select()))
            .load::<(ProjectId, i64, Option<SecretRow>)>(self)
            .await?;
        let loaded = |(project, revision, row): (_, _, Option<SecretRow>)| LoadedSecret {
            project,
            revision,
            record: row.map(SecretRecord::from),
        };
        Ok(rows.into_iter().map(loaded).collect())
    }
}

impl From<MetaRow> for SecretMeta {
    fn from(row: MetaRow) -> Self {
        let MetaRow { name, version, updated_at, updated_by } = row;
        Self { name, version, updated_at, updated_by }
    }
}

impl From<SecretRow> for SecretRecord {
    fn from(row: SecretRow) -> Self {
        let SecretRow { meta, revision, key_id, sealed: bytes, size_bytes } = row;
        Self { meta: meta.into(), revision, value: Sealed { key_id, bytes }, size_bytes }
    }
}
