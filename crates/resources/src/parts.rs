//! The values of the parts of the desired state, for the nodes.

use std::collections::BTreeMap;

use kernel::{Limits, ProjectId, Secret, StorageId, error_chain};
use store::{Connection, Error, Result, SealedColumn, Store};

use crate::model::SecretName;
use crate::repository::{
    EmailRepository as _, GrantedStorage, LoadedSecret, SecretRecord, SecretRepository as _, StorageRepository as _,
};

/// The sealed values of secrets. A row is identified by the secret and its revision, and revisions never repeat. So no
/// two values of a secret have the same associated data, even after a deletion.
pub(crate) const SECRET: SealedColumn = SealedColumn {
    table: "resources.secrets",
    column: "sealed",
    row_key: &[("project_id", "uuid"), ("name", "text"), ("revision", "bigint")],
};

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[SECRET];

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

impl PartValues {
    /// Creates the loader. Its store has the sealing keys.
    #[must_use]
    pub const fn new(store: Store, limits: Limits) -> Self {
        Self { store, limits }
    }

    /// Returns the secrets of the projects among these that have or had any. If one value of a project cannot be
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
                    Err(error) => *set = Err(unreadable(&record.meta.name, &error)),
                }
            }
        }
        Ok(sets)
    }

    /// Returns the storage of the projects among these that have a grant.
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

    /// Returns the mail domains of the projects among these that have a grant.
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

    fn open(&self, project: ProjectId, record: &SecretRecord) -> Result<Secret> {
        let row = secret_row(project, &record.meta.name, record.revision);
        let value = self.store.open(SECRET.associated_data(&row), &record.value)?;
        String::from_utf8(value).map(Secret::new).map_err(|error| Error::inconsistent(error.utf8_error()))
    }
}

/// Adds the name of the secret to the error, for the operator.
fn unreadable(name: &SecretName, error: &Error) -> Error {
    Error::inconsistent(format!("the secret {name} cannot be opened: {}", error_chain(error)))
}

/// Returns the row of a secret, as in the associated data of its value.
pub(crate) fn secret_row(project: ProjectId, name: &SecretName, revision: i64) -> String {
    SealedColumn::row(&[project.as_uuid().to_string(), name.to_string(), revision.to_string()])
}
