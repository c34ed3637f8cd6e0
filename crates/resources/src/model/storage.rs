//! Object storage (specification, "Storage"; contract section 9).

use kernel::{StorageId, Time};
use serde::Serialize;

/// The object storage of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "enabled": true, "quotaBytes": 1_073_741_824_u64, "usedBytes": 10_240 }))
)]
pub struct StorageStatus {
    /// Whether storage is granted.
    pub enabled: bool,
    /// Identifies the project's objects. It never changes, and stays after a revocation. Null before the first grant.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub prefix: Option<StorageId>,
    /// The limit of the plan on the sum of the sizes of all objects, in bytes.
    pub quota_bytes: u64,
    /// The sum of the sizes of all objects, in bytes, at the last report of the node.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub used_bytes: i64,
    /// The time at which the node last reported the usage. Null before its first report.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub reported_at: Option<Time>,
}
