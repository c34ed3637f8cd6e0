//! App user auth.

use diesel::dsl::exists;
use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::seal::Sealed;
use kernel::{ProjectId, Resource};
use store::{Connection, Error, Prepared, Result};

use crate::model::{AuthClientId, AuthProvider, AuthSettings, BrandColor, BrandLogoUrl, BrandName};
use crate::schema::{auth, auth_providers, grants};

/// The settings of a project, and whether app sign-in is granted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundAuth {
    pub settings: AuthSettings,
    pub is_granted: bool,
}

/// A registered provider with its sealed client secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderRecord {
    pub provider: AuthProvider,
    /// The provider revision at which the provider was registered.
    pub registration: i64,
    /// The provider revision at which the client was set.
    pub revision: i64,
    pub client_id: AuthClientId,
    pub client_secret: Sealed,
}

/// A row of [`AuthRepository::auth_load`]: a project with app sign-in, and one of its providers, if it has any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedAuth {
    pub project: ProjectId,
    /// The number of the current grant.
    pub grant: i64,
    pub settings: AuthSettings,
    /// The current provider revision.
    pub provider_revision: i64,
    pub provider: Option<ProviderRecord>,
}

/// App user auth on a [`store::Connection`].
pub trait AuthRepository {
    /// Creates the settings of a project with the defaults. This is a no-op if the project has settings.
    async fn auth_create(&mut self, project: ProjectId) -> Result<()>;

    /// Returns the settings of a project.
    async fn auth_find(&mut self, project: ProjectId) -> Result<Option<FoundAuth>>;

    /// Returns the settings of a project. Locks them, the providers and the grant until the transaction ends.
    async fn auth_lock(&mut self, project: ProjectId) -> Result<Option<AuthSettings>>;

    /// Replaces the settings of a project.
    async fn auth_update(&mut self, project: ProjectId, settings: AuthSettings) -> Result<()>;

    /// Increases the number of the grant, because the current one ends.
    async fn auth_end_grant(&mut self, project: ProjectId) -> Result<()>;

    /// Returns app sign-in of each of these projects to which it is granted, ordered by project and provider, in one
    /// snapshot.
    async fn auth_load(&mut self, projects: &[ProjectId]) -> Result<Vec<LoadedAuth>>;

    /// Increases the provider revision of a project and returns it.
    async fn auth_provider_raise_revision(&mut self, project: ProjectId) -> Result<i64>;

    /// Lists the providers of a project, in the order of the sign-in page.
    async fn auth_provider_list(&mut self, project: ProjectId) -> Result<Vec<ProviderRecord>>;

    /// Inserts or replaces a provider of a project whose settings are locked.
    async fn auth_provider_upsert(&mut self, project: ProjectId, record: ProviderRecord) -> Result<()>;

    /// Deletes a provider of a project. Returns false if it was not registered.
    async fn auth_provider_delete(&mut self, project: ProjectId, provider: AuthProvider) -> Result<bool>;

    /// Deletes the settings and the providers of a deleted project. Waits for changes in progress.
    async fn auth_delete(&mut self, project: ProjectId) -> Result<()>;
}

/// The reserved prefix of the names of client secrets (specification, "App user auth", rule 6).
const SECRET_PREFIX: &str = "auth/";

/// Returns the reserved name of the client secret.
pub(crate) fn client_secret_name(provider: AuthProvider) -> String {
    format!("{SECRET_PREFIX}{provider}")
}

#[derive(Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = auth, treat_none_as_null = true)]
struct SettingsRow {
    session_days: i32,
    brand_name: Option<BrandName>,
    brand_color: Option<BrandColor>,
    brand_logo_url: Option<BrandLogoUrl>,
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = auth_providers)]
struct ProviderRow {
    secret_name: String,
    registration: i64,
    revision: i64,
    client_id: AuthClientId,
    key_id: String,
    sealed: Vec<u8>,
}

type LoadedRow = (ProjectId, i64, SettingsRow, i64, Option<ProviderRow>);

impl AuthRepository for Connection {
    async fn auth_create(&mut self, project: ProjectId) -> Result<()> {
        let row = (auth::project_id.eq(project), SettingsRow::from(AuthSettings::default()));
        let insert = diesel::insert_into(auth::table).values(row);
        Prepared(insert.on_conflict(auth::project_id).do_nothing()).execute(self).await?;
        Ok(())
    }

    async fn auth_find(&mut self, project: ProjectId) -> Result<Option<FoundAuth>> {
        let granted = grants::table.find((auth::project_id, Resource::Auth));
        let query = auth::table.find(project).select((SettingsRow::as_select(), exists(granted)));
        let row: Option<(SettingsRow, bool)> = query.first(self).await.optional()?;
        Ok(row.map(|(settings, is_granted)| FoundAuth { settings: settings.into(), is_granted }))
    }

    async fn auth_lock(&mut self, project: ProjectId) -> Result<Option<AuthSettings>> {
        let query = auth::table.find(project).select(SettingsRow::as_select()).for_update();
        Ok(query.first(self).await.optional()?.map(AuthSettings::from))
    }

    async fn auth_update(&mut self, project: ProjectId, settings: AuthSettings) -> Result<()> {
        diesel::update(auth::table.find(project)).set(SettingsRow::from(settings)).execute(self).await?;
        Ok(())
    }

    async fn auth_end_grant(&mut self, project: ProjectId) -> Result<()> {
        let next = auth::grant_number.eq(auth::grant_number + 1);
        diesel::update(auth::table.find(project)).set(next).execute(self).await?;
        Ok(())
    }

    async fn auth_load(&mut self, projects: &[ProjectId]) -> Result<Vec<LoadedAuth>> {
        let granted = grants::table.find((auth::project_id, Resource::Auth));
        let rows: Vec<LoadedRow> = auth::table
            .left_join(auth_providers::table)
            .filter(auth::project_id.eq_any(projects).and(exists(granted)))
            .order((auth::project_id, auth_providers::secret_name))
            .select((
                auth::project_id,
                auth::grant_number,
                SettingsRow::as_select(),
                auth::provider_revision,
                Option::<ProviderRow>::as_select(),
            ))
            .load(self)
            .await?;
        let loaded = |(project, grant, settings, provider_revision, provider): LoadedRow| {
            let provider = provider.map(ProviderRecord::try_from).transpose()?;
            Ok(LoadedAuth { project, grant, settings: settings.into(), provider_revision, provider })
        };
        rows.into_iter().map(loaded).collect()
    }

    async fn auth_provider_raise_revision(&mut self, project: ProjectId) -> Result<i64> {
        let next = auth::provider_revision.eq(auth::provider_revision + 1);
        let update = diesel::update(auth::table.find(project)).set(next).returning(auth::provider_revision);
        Ok(update.get_result(self).await?)
    }

    async fn auth_provider_list(&mut self, project: ProjectId) -> Result<Vec<ProviderRecord>> {
        let query = auth_providers::table.filter(auth_providers::project_id.eq(project));
        let rows: Vec<ProviderRow> = query.select(ProviderRow::as_select()).load(self).await?;
        let mut records = rows.into_iter().map(ProviderRecord::try_from).collect::<Result<Vec<_>>>()?;
        records.sort_unstable_by_key(|record| record.provider);
        Ok(records)
    }

    async fn auth_provider_upsert(&mut self, project: ProjectId, record: ProviderRecord) -> Result<()> {
        let ProviderRecord { provider, registration, revision, client_id, client_secret } = record;
        let row = (
            auth_providers::project_id.eq(project),
            auth_providers::secret_name.eq(client_secret_name(provider)),
            auth_providers::registration.eq(registration),
            auth_providers::revision.eq(revision),
            auth_providers::client_id.eq(client_id),
            auth_providers::key_id.eq(client_secret.key_id),
            auth_providers::sealed.eq(client_secret.bytes),
        );
        diesel::insert_into(auth_providers::table)
            .values(row)
            .on_conflict((auth_providers::project_id, auth_providers::secret_name))
            .do_update()
            .set((
                auth_providers::revision.eq(excluded(auth_providers::revision)),
                auth_providers::client_id.eq(excluded(auth_providers::client_id)),
                auth_providers::key_id.eq(excluded(auth_providers::key_id)),
                auth_providers::sealed.eq(excluded(auth_providers::sealed)),
            ))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn auth_provider_delete(&mut self, project: ProjectId, provider: AuthProvider) -> Result<bool> {
        let row = auth_providers::table.find((project, client_secret_name(provider)));
        Ok(diesel::delete(row).execute(self).await? == 1)
    }

    async fn auth_delete(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(auth::table.find(project)).execute(self).await?;
        Ok(())
    }
}

impl From<SettingsRow> for AuthSettings {
    fn from(row: SettingsRow) -> Self {
        let SettingsRow { session_days, brand_name, brand_color, brand_logo_url } = row;
        Self { session_days, brand_name, brand_color, brand_logo_url }
    }
}

impl From<AuthSettings> for SettingsRow {
    fn from(settings: AuthSettings) -> Self {
        let AuthSettings { session_days, brand_name, brand_color, brand_logo_url } = settings;
        Self { session_days, brand_name, brand_color, brand_logo_url }
    }
}

impl TryFrom<ProviderRow> for ProviderRecord {
    type Error = Error;

    fn try_from(row: ProviderRow) -> Result<Self> {
        let ProviderRow { secret_name, registration, revision, client_id, key_id, sealed: bytes } = row;
        let provider = secret_name.strip_prefix(SECRET_PREFIX).unwrap_or(&secret_name).parse();
        let provider = provider.map_err(Error::inconsistent)?;
        Ok(Self { provider, registration, revision, client_id, client_secret: Sealed { key_id, bytes } })
    }
}
