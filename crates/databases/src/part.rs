//! The part `database` of the desired state, for the nodes, and the sealed passwords, which no node receives.

use std::collections::BTreeMap;

use kernel::{DatabaseId, ProjectId};
use store::{Connection, Result, SealedColumn, Store};

use crate::repository::{DatabasePart, PartRepository as _};

/// The sealed passwords of the projects' logins. A password never changes, so the id of the database identifies it.
pub(crate) const PASSWORD: SealedColumn =
    SealedColumn { table: "databases.databases", column: "sealed", row_key: &[("id", "uuid")] };

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[PASSWORD];

/// Returns the text that stands for the row of a database in the associated data of its password.
pub(crate) fn password_row(database: DatabaseId) -> String {
    SealedColumn::row(&[database.as_uuid().to_string()])
}

/// Loads the part. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PartValues {
    store: Store,
}

impl PartValues {
    /// Creates the loader.
    #[must_use]
    pub const fn new(store: Store) -> Self {
        Self { store }
    }

    /// Returns the part of each of these projects that has a database, or a database that the node must still
    /// delete.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn load(
        &self,
        connection: &mut Connection,
        projects: &[ProjectId],
    ) -> Result<BTreeMap<ProjectId, DatabasePart>> {
        let parts = connection.part_load(projects, self.store.clock_rng().now()).await?;
        Ok(parts.into_iter().collect())
    }
}
