//! Backup generations and exports.

use kernel::Time;
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// The reason why a generation was made.
    pub enum GenerationKind {
        /// The schedule.
        Scheduled = "scheduled",
        /// A restore, which replaces the database.
        PreRestore = "pre_restore",
        /// The deletion of the database.
        Final = "final",
    } example Scheduled
}

/// A backup of a project's database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "epoch": 1,
        "seq": 42,
        "sizeBytes": 104_857,
        "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "offsiteKey": "prj_01m7yhx300fbd828t5cy4tqkff/20261121T080000Z-4f9c3d52-7a56-4a8e-9c1e-0d4f1e9b7a10.dump",
    }))
)]
pub struct Generation {
    /// The epoch of the project's placement at the time of the backup.
    pub epoch: i64,
    /// The number of the generation. It increases, and is unique for the life of the project.
    pub seq: i64,
    pub kind: GenerationKind,
    /// The size of the stored object, in bytes.
    pub size_bytes: i64,
    /// The SHA-256 of the stored object, as 64 hex digits.
    pub sha256: String,
    /// The name of the stored object.
    pub offsite_key: String,
    /// The time of the backup. The generation contains the state of the database at this time.
    pub created_at: Time,
}

/// The generations of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DatabaseGenerations {
    /// The generations of the project's current and earlier databases, newest first.
    pub items: Vec<Generation>,
    /// The time at which the node last compared stored generations with their digests. Null if it never did.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_checked_at: Option<Time>,
}

/// The generation to restore, as in the listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "epoch": 1, "seq": 42 })))]
pub struct RestoreRequest {
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[validate(range(min = 1))]
    pub epoch: i64,
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[validate(range(min = 1))]
    pub seq: i64,
}

/// A diagnostic image of a database, which cannot be restored over the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "key": "prj_01m7yhx300fbd828t5cy4tqkff/exports/20261121T080000Z-4f9c3d52-7a56-4a8e-9c1e-0d4f1e9b7a10.dump",
        "sizeBytes": 104_857,
    }))
)]
pub struct DatabaseExport {
    /// The name of the stored object.
    pub key: String,
    /// The size of the stored object, in bytes.
    pub size_bytes: i64,
    /// The time of the image. It contains the state of the database at this time.
    pub created_at: Time,
}
