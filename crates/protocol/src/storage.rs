//! The part `storage`, the report on its usage, and the deletion of the objects of purged projects.

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;
use crate::report::ReportKind;

/// The object storage of a project: worker code sees it as `env.storage`. The context `resources` owns this part, and
/// removes it when the grant is revoked; the objects stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Identifies the project's objects. The value is opaque and never changes. A later project with the same name has
    /// another one.
    #[cfg_attr(feature = "openapi", schema(pattern = "^sto_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub prefix: String,
    /// The maximum sum of the sizes of all objects, in bytes.
    pub quota_bytes: u64,
}

impl DesiredPart for Storage {
    const NAME: &'static str = "storage";
}

/// A report on the storage of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorageReport {
    /// The sum of the sizes of all objects, in bytes.
    pub used_bytes: u64,
    /// Whether an object was refused because of the quota since the usage last decreased.
    pub quota_exceeded: bool,
}

impl ReportKind for StorageReport {
    const NAME: &'static str = "storage";
}

/// The storage of a project that was purged, 30 days after its deletion: the node deletes all objects, and then sends a
/// [`DeletedStorageReport`]. The context `resources` owns this part, and removes it after the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeletedStorage {
    /// The prefix of the project's objects. No project uses this prefix any more.
    #[cfg_attr(feature = "openapi", schema(pattern = "^sto_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub prefix: String,
}

impl DesiredPart for DeletedStorage {
    const NAME: &'static str = "deletedStorage";
}

/// A report that no object of a purged project exists any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletedStorageReport {
    /// The prefix of the deleted objects.
    #[cfg_attr(feature = "openapi", schema(pattern = "^sto_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub prefix: String,
}

impl ReportKind for DeletedStorageReport {
    const NAME: &'static str = "deletedStorage";
}
