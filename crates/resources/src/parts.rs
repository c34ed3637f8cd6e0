//! The values of the parts of the desired state, for the nodes.

use std::collections::BTreeMap;

use kernel::{Limits, ProjectId, Secret, StorageId, error_chain};
use store::{Connection, Error, Result, SealedColumn, Store};

use crate::model::{AuthClientId, AuthProvider, AuthSettings, SecretName};
use crate::repository::{
    AuthRepository as _, EmailRepository as _, GrantedStorage, LoadedAuth, LoadedSecret, ProviderRecord, SecretRecord,
    SecretRepository as _, StorageRepository as _, client_secret_name,
};

/// The sealed values of secrets. A row is identified by the secret and its revision, and revisions never repeat. So no
/// two values of a secret have the same associated data, even after a deletion.
pub(crate) const SECRET: SealedColumn = SealedColumn {
    table: "resources.secrets",
    column: "sealed",
    row_key: &[("project_id", "uuid"), ("name", "text"), ("revision", "bigint")],
};

/// The sealed client secrets of app sign-in. A row is identified by the reserved name of the secret and the revision at
/// which it was set, so the associated data never repeats either.
pub(crate) const CLIENT_SECRET: SealedColumn = SealedColumn {
    table: "resources.auth_providers",
    column: "sealed",
    row_key: &[("project_id", "uuid"), ("secret_name", "text"), ("revision", "bigint")],
};

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[SECRET, CLIENT_SECRET];

/// Loads the values of parts. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PartValues {
    store: Store,
    limits: Limits,
}

/// The secrets of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretSet {
    /// Increases with every change of the project's secrets.
    pub revision: i64,
    pub values: BTreeMap<SecretName, Secret>,
}

/// The storage that is granted to a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageGrant {
    pub prefix: StorageId,
    /// The limit of the organization's plan.
    pub quota_bytes: u64,
}

/// The app sign-in that is granted to a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthGrant {
    /// Increases each time app sign-in is enabled.
    pub number: i64,
    pub settings: AuthSettings,
    /// Increases each time a provider is set. No registration is above it.
    pub provider_revision: i64,
    /// The registered providers, each once.
    pub clients: Vec<AuthClient>,
}

/// The client of a project at an identity provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthClient {
    pub provider: AuthProvider,
    /// Changes when the provider is deleted and registered again, but not when its client is replaced.
    pub registration: i64,
    pub client_id: AuthClientId,
    pub client_secret: Secret,
}

impl PartValues {
    /// Creates the loader. Its store has the sealing keys.
    #[must_use]
    pub const fn new(store: Store, limits: Limits) -> Self {
        Self { store, limits }
    }

    /// Returns the secrets of each of these projects that has or had any. If one value of a project cannot be
    /// opened, the project's result is [`Error::Inconsistent`].
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn secrets(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, Result<SecretSet>>> {
        let mut sets = BTreeMap::new();
        for LoadedSecret { project, revision, record } in connection.secret_load(projects).await? {
            let set = sets.entry(project).or_insert_with(|| Ok(SecretSet { revision, values: BTreeMap::new() }));
            if let (Ok(SecretSet { values, .. }), Some(record)) = (&mut *set, record) {
                match self.open(project, &record) {
                    Ok(value) => {
                        values.insert(record.meta.name, value);
                    }
                    Err(error) => *set = Err(unreadable(record.meta.name.as_str(), &error)),
                }
            }
        }
        Ok(sets)
    }

    /// Returns the storage of each of these projects to which storage is granted.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn storage(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, StorageGrant>> {
        let granted =
            connection.storage_load(projects).await?.into_iter().map(|GrantedStorage { project, prefix, plan }| {
                (project, StorageGrant { prefix, quota_bytes: self.limits.for_plan(plan).storage_bytes })
            });
        Ok(granted.collect())
    }

    /// Returns the mail domain of each of these projects that has one.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn email_domains(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, String>> {
        Ok(connection.email_domain_load(projects).await?.into_iter().collect())
    }

    /// Returns the app sign-in of each of these projects to which it is granted. If one client secret of a project
    /// cannot be opened, the project's result is [`Error::Inconsistent`].
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn auth(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, Result<AuthGrant>>> {
        let mut granted = BTreeMap::new();
        for loaded in connection.auth_load(projects).await? {
            let LoadedAuth { project, grant, settings, provider_revision, provider } = loaded;
            let new = || Ok(AuthGrant { number: grant, settings, provider_revision, clients: Vec::new() });
            let result = granted.entry(project).or_insert_with(new);
            if let (Ok(AuthGrant { clients, .. }), Some(record)) = (&mut *result, provider) {
                match open_client_secret(&self.store, project, &record) {
                    Ok(client_secret) => {
                        let ProviderRecord { provider, registration, client_id, .. } = record;
                        clients.push(AuthClient { provider, registration, client_id, client_secret });
                    }
                    Err(error) => *result = Err(unreadable(&client_secret_name(record.provider), &error)),
                }
            }
        }
        Ok(granted)
    }

    fn open(&self, project: ProjectId, record: &SecretRecord) -> Result<Secret> {
        let row = secret_row(project, &record.meta.name, record.revision);
        self.store.open_text(SECRET.associated_data(&row), &record.value)
    }
}

/// Opens the client secret of a provider.
pub(crate) fn open_client_secret(store: &Store, project: ProjectId, record: &ProviderRecord) -> Result<Secret> {
    let row = client_secret_row(project, record.provider, record.revision);
    store.open_text(CLIENT_SECRET.associated_data(&row), &record.client_secret)
}

/// Adds the name of the secret to the error, for the operator.
fn unreadable(name: &str, error: &Error) -> Error {
    Error::inconsistent(format!("the secret {name} cannot be opened: {}", error_chain(error)))
}

/// Returns the row of a secret, as in the associated data of its value.
pub(crate) fn secret_row(project: ProjectId, name: &SecretName, revision: i64) -> String {
    SealedColumn::row(&[project.as_uuid().to_string(), name.to_string(), revision.to_string()])
}

/// Returns the row of a provider, as in the associated data of its client secret.
pub(crate) fn client_secret_row(project: ProjectId, provider: AuthProvider, revision: i64) -> String {
    SealedColumn::row(&[project.as_uuid().to_string(), client_secret_name(provider), revision.to_string()])
}
