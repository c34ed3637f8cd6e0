//! The part `database`, the reports about databases, and what a node announces about its Postgres.

mod report;
mod server;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::desired::DesiredPart;

pub use self::report::{
    CompletedPhase, DatabaseReport, ExportReport, FailedExport, FailedOperation, GenerationReport, OperationReport,
    StoredExport,
};
pub use self::server::{DatabaseServer, NodeInfo, SslMode};

/// The database of a project. The context `databases` owns this part. It is desired while the project has a database,
/// and until the node has deleted it.
///
/// Compare the part as a whole: `epoch`, `source`, `sizeBytes`, `backupDays` and `suspended` can change without a new
/// `revision`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Database {
    /// Increases with every change of the logins, the operation or the exports. The node reports the revision that it
    /// has applied. For one project it never decreases, even if the database is deleted and created again.
    pub revision: i64,
    /// Identifies the database, and names its objects in the node's Postgres. A later database of the project has
    /// another one.
    #[cfg_attr(feature = "openapi", schema(pattern = "^dbs_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The verifier of the login of `DatabaseConnect`; null once the database is being deleted (an operation of kind
    /// `delete` in the phase `committing`).
    #[cfg_attr(feature = "openapi", schema(required))]
    pub verifier: Option<Verifier>,
    /// The valid tokens. A login of the database that is not listed must be refused.
    pub tokens: Vec<DatabaseLogin>,
    /// The maximum size of the database, in bytes.
    pub size_bytes: u64,
    /// The number of days for which scheduled generations are kept.
    pub backup_days: u32,
    /// The epoch of new generations. A restore raises it.
    pub epoch: i64,
    /// The generation from which the node creates the database if it does not exist there; null to create an empty one.
    /// The node keeps this object, and the object of an operation, beyond the retention.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub source: Option<GenerationRef>,
    /// The running operation.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub operation: Option<DatabaseOperation>,
    /// The exports to make.
    pub exports: Vec<String>,
    /// Whether the operator suspended the project: the data stays, and every login is refused.
    pub suspended: bool,
}

impl DesiredPart for Database {
    const NAME: &'static str = "database";
}

/// A token of a database: a login role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DatabaseLogin {
    /// The name of the role.
    #[cfg_attr(feature = "openapi", schema(pattern = "^tok_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub user: String,
    pub verifier: Verifier,
    /// When the login expires (RFC 3339, UTC); null if it does not.
    #[cfg_attr(feature = "openapi", schema(required, format = "date-time"))]
    pub expires_at: Option<String>,
}

/// A SCRAM-SHA-256 verifier in the format of Postgres's `rolpassword`. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Verifier(String);

impl Verifier {
    /// Wraps a verifier.
    #[must_use]
    pub const fn new(verifier: String) -> Self {
        Self(verifier)
    }

    /// Returns the verifier.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

/// A stored generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GenerationRef {
    /// The object, relative to `SVC_NODE_BACKUPS`.
    pub key: String,
    /// The size of the object in bytes.
    pub size_bytes: u64,
    /// The SHA-256 of the object, as 64 hex digits.
    pub sha256: String,
}

/// An operation on the whole database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DatabaseOperation {
    #[cfg_attr(feature = "openapi", schema(pattern = "^opn_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    pub kind: DatabaseOperationKind,
    /// The phase to execute now.
    pub phase: OperationPhase,
    /// The generation to restore; null for a deletion.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub generation: Option<GenerationRef>,
}

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum DatabaseOperationKind {
    /// Replaces the content by that of a generation: all four phases.
    RestoreGeneration,
    /// Deletes the database: `draining`, `sealing`, `committing`.
    Delete,
}

/// A phase of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OperationPhase {
    /// Refuses logins and ends all sessions.
    Draining,
    /// Stores a generation of the drained database. A restore also prepares the new one.
    Sealing,
    /// Swaps or removes the database. Cannot be aborted.
    Committing,
    /// Allows logins again.
    Reactivating,
}

/// The kind of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GenerationKind {
    /// Made by the schedule.
    Scheduled,
    /// Before a restore.
    PreRestore,
    /// Before a deletion.
    Final,
}

/// Reads a field that must be present and may be null.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_verifiers() {
        let verifier = Verifier::new("SCRAM-SHA-256$hush".to_owned());
        let login = DatabaseLogin { user: "tok_1".to_owned(), verifier, expires_at: None };
        assert!(!format!("{login:?}").contains("hush"));
        assert_eq!(serde_json::to_value(&login).unwrap()["verifier"], "SCRAM-SHA-256$hush");
    }
}
