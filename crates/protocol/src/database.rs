//! The part `database`, the reports about databases, and what a node announces about its Postgres.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
#[cfg(feature = "openapi")]
use validator::Validate as _;

use crate::desired::DesiredPart;
use crate::report::{ReportKind, message};

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

/// A report on the database of a project: what the node observes now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatabaseReport {
    /// The `id` of the part that the node has applied.
    #[cfg_attr(feature = "openapi", schema(pattern = "^dbs_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub database: String,
    /// The `revision` of the part that the node has applied. From now on, the node refuses every login that this
    /// revision does not list.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub revision: i64,
    /// Whether the database exists and admits the listed logins.
    pub ready: bool,
    /// The size of the database in bytes.
    pub size_bytes: u64,
    /// Whether the database is read-only because of its size.
    pub read_only: bool,
    /// The time (RFC 3339) up to which the last good generation contains all writes; null before the first one.
    #[cfg_attr(feature = "openapi", schema(required, format = "date-time"))]
    #[serde(deserialize_with = "nullable")]
    pub fresh_at: Option<String>,
    /// When the node last read stored generations again and compared their digests (RFC 3339); null if it never did.
    #[cfg_attr(feature = "openapi", schema(required, format = "date-time"))]
    #[serde(deserialize_with = "nullable")]
    pub checked_at: Option<String>,
    /// Why backups fail, for the project's members: a clause without a full stop. Null after a success.
    #[cfg_attr(feature = "openapi", schema(required, max_length = 1000))]
    #[serde(deserialize_with = "message")]
    pub backup_error: Option<String>,
    /// The key of the generation from which the node created the database because it did not exist there; null
    /// otherwise. An operation does not set it.
    #[cfg_attr(feature = "openapi", schema(required, max_length = 1000))]
    #[serde(deserialize_with = "message")]
    pub recovered_from: Option<String>,
    /// The progress of the operation; null without a change to report.
    #[cfg_attr(feature = "openapi", schema(required))]
    #[serde(deserialize_with = "nullable")]
    pub operation: Option<OperationReport>,
}

impl ReportKind for DatabaseReport {
    const NAME: &'static str = "database";
}

/// The progress of an operation. The node repeats it until the phase of the part changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum OperationReport {
    Completed(CompletedPhase),
    Failed(FailedOperation),
}

/// A completed phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CompletedPhase {
    /// The operation.
    #[cfg_attr(feature = "openapi", schema(pattern = "^opn_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    pub completed: OperationPhase,
    /// The generation that `sealing` stored; null for the other phases.
    #[cfg_attr(feature = "openapi", schema(required))]
    #[serde(deserialize_with = "nullable")]
    pub generation: Option<GenerationReport>,
}

/// A failure that repeating cannot fix, before `committing`. The old database serves again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailedOperation {
    /// The operation.
    #[cfg_attr(feature = "openapi", schema(pattern = "^opn_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The reason, for the project's members: a clause without a full stop.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    #[serde(deserialize_with = "text")]
    pub error: String,
}

/// A report on a stored and verified generation. The node repeats it until the control plane has accepted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GenerationReport {
    /// The id of the database that it contains.
    #[cfg_attr(feature = "openapi", schema(pattern = "^dbs_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub database: String,
    /// The object, relative to `SVC_NODE_BACKUPS`. Identifies the generation.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    #[serde(deserialize_with = "text")]
    pub key: String,
    /// The epoch in which the generation was made.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub epoch: i64,
    pub kind: GenerationKind,
    /// The size of the object.
    pub size_bytes: u64,
    /// The SHA-256 of the object, as 64 hex digits.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[0-9a-f]{64}$"))]
    #[serde(deserialize_with = "hex_digest")]
    pub sha256: String,
    /// The time of its content (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub created_at: String,
}

impl ReportKind for GenerationReport {
    const NAME: &'static str = "generation";
}

/// A report on an export. The node repeats it until the control plane has accepted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum ExportReport {
    Stored(StoredExport),
    Failed(FailedExport),
}

impl ReportKind for ExportReport {
    const NAME: &'static str = "export";
}

/// A stored export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoredExport {
    #[cfg_attr(feature = "openapi", schema(pattern = "^exp_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The object, relative to `SVC_NODE_BACKUPS`.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    #[serde(deserialize_with = "text")]
    pub key: String,
    /// The size of the object.
    pub size_bytes: u64,
    /// The time of its content (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub created_at: String,
}

/// A failed export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FailedExport {
    #[cfg_attr(feature = "openapi", schema(pattern = "^exp_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The reason, for the project's members: a clause without a full stop.
    #[cfg_attr(feature = "openapi", schema(max_length = 1000))]
    #[serde(deserialize_with = "text")]
    pub error: String,
}

/// The announcement of a node about itself, at its start and at each relist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeInfo {
    /// The node's Postgres; null if it has none.
    #[cfg_attr(feature = "openapi", schema(required), validate(nested))]
    #[serde(deserialize_with = "nullable")]
    pub database: Option<DatabaseServer>,
}

/// The address of a node's Postgres, for the clients of all its databases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DatabaseServer {
    /// A host name or an IP address.
    #[cfg_attr(
        feature = "openapi",
        schema(min_length = 1, max_length = 253, example = "db1.svc.example"),
        validate(length(min = 1, max = 253))
    )]
    pub host: String,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 5432), validate(range(min = 1)))]
    pub port: u16,
    pub sslmode: SslMode,
    /// The interval of scheduled generations, in seconds.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 3600), validate(range(min = 1)))]
    pub backup_interval_seconds: u32,
}

/// The `sslmode` that clients should use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SslMode {
    Disable,
    Require,
    VerifyFull,
}

impl SslMode {
    /// Returns the word in messages, and in the address of a database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disable => "disable",
            Self::Require => "require",
            Self::VerifyFull => "verify-full",
        }
    }
}

/// Reads a field that must be present and may be null.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer)
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    message(deserializer)?.ok_or_else(|| D::Error::custom("must be a string"))
}

fn hex_digest<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let digest = String::deserialize(deserializer)?;
    let is_hex = digest.len() == 64 && digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { Ok(digest) } else { Err(D::Error::custom("sha256 must have 64 hex digits")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn debug_does_not_show_verifiers() {
        let verifier = Verifier::new("SCRAM-SHA-256$hush".to_owned());
        let login = DatabaseLogin { user: "tok_1".to_owned(), verifier, expires_at: None };
        assert!(!format!("{login:?}").contains("hush"));
        assert_eq!(serde_json::to_value(&login).unwrap()["verifier"], "SCRAM-SHA-256$hush");
    }

    #[test]
    fn progress_is_either_completed_or_failed() {
        let read = |value| serde_json::from_value::<OperationReport>(value);
        let completed = json!({ "id": "opn_1", "completed": "draining", "generation": null });
        assert!(matches!(read(completed).unwrap(), OperationReport::Completed(_)));
        let failed = json!({ "id": "opn_1", "error": "the object is missing" });
        assert!(matches!(read(failed).unwrap(), OperationReport::Failed(_)));
        for malformed in [
            json!({ "id": "opn_1" }),
            json!({ "id": "opn_1", "completed": "draining" }),
            json!({ "id": "opn_1", "completed": "done", "generation": null }),
            json!({ "id": "opn_1", "error": "a\u{0}b" }),
            json!({ "id": "opn_1", "error": "x".repeat(1001) }),
            json!({ "id": "opn_1", "completed": "draining", "generation": null, "error": "x" }),
        ] {
            assert!(read(malformed.clone()).is_err(), "{malformed}");
        }
    }

    #[test]
    fn digest_of_generation_has_64_hex_digits() {
        let report = |sha256: &str| {
            serde_json::from_value::<GenerationReport>(json!({
                "database": "dbs_1", "key": "prj_1/a.dump", "epoch": 1, "kind": "pre_restore", "sizeBytes": 10,
                "sha256": sha256, "createdAt": "2026-11-21T08:00:00.000Z",
            }))
        };
        assert_eq!(report(&"0f".repeat(32)).unwrap().kind, GenerationKind::PreRestore);
        for malformed in ["", "0F", &"0F".repeat(32), &"0f".repeat(33)] {
            assert!(report(malformed).is_err(), "{malformed}");
        }
    }
}
