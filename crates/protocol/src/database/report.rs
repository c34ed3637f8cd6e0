//! The reports about databases.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{GenerationKind, OperationPhase, nullable};
use crate::report::{ReportKind, message};

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
    /// Whether the database exceeds its size limit, so that sessions are read-only or logins are refused.
    pub read_only: bool,
    /// The time (RFC 3339) up to which the last good generation contains all writes. Null if the node does not know it:
    /// the control plane then keeps the last reported time.
    #[cfg_attr(feature = "openapi", schema(required))]
    #[serde(deserialize_with = "nullable")]
    pub fresh_at: Option<String>,
    /// When the node last read stored generations again and compared their digests (RFC 3339); null if it never did.
    #[cfg_attr(feature = "openapi", schema(required))]
    #[serde(deserialize_with = "nullable")]
    pub checked_at: Option<String>,
    /// Why backups fail, and the consequence, for the project's members: sentences without the last full stop. Null
    /// after a success. Null without `freshAt` does not end an earlier failure.
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
