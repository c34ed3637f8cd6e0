//! The deletion of the backups of purged projects.

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;
use crate::report::ReportKind;

/// The backups of a project that was purged, 30 days after its deletion: the node deletes all objects below
/// `<project>/` in its backup store, and then sends a [`DeletedBackupsReport`]. The context `databases` owns this part,
/// and removes it after the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeletedBackups {}

impl DesiredPart for DeletedBackups {
    const NAME: &'static str = "deletedBackups";
}

/// A report that no backup of a purged project exists any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeletedBackupsReport {}

impl ReportKind for DeletedBackupsReport {
    const NAME: &'static str = "deletedBackups";
}
