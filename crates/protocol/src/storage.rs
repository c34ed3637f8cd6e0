//! The part `storage`, and the report on its usage.

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;
use crate::report::ReportKind;

/// The object storage of a project: worker code sees it as `env.storage`. The context `resources` owns this part, and
/// removes it when the grant is revoked; the objects stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Identifies the project's objects. Opaque, and never changes. A later project of the same name has another one.
    #[cfg_attr(feature = "openapi", schema(pattern = "^sto_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub prefix: String,
    /// The limit of the sum of the sizes of all objects, in bytes.
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
