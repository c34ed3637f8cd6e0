//! The reports of a node.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A kind of report. One context registers a kind and receives all its reports.
pub trait ReportKind: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The kind's name on the wire.
    const NAME: &'static str;
}

/// A batch of reports, in the order in which the node observed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, validator::Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Batch {
    /// The number of the batch, greater than that of the node's previous batch. The control plane accepts each number
    /// once, whatever the batch contains. Send the same batch again until the control plane responds.
    #[cfg_attr(feature = "openapi", schema(minimum = 1), validate(range(min = 1)))]
    pub batch: i64,
    /// The reports, at most 50.
    #[cfg_attr(feature = "openapi", schema(max_items = 50), validate(length(max = 50)))]
    pub reports: Vec<Report>,
}

/// An observed state of a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(pattern = "^prj_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub project: String,
    /// The report's kind.
    pub kind: String,
    #[cfg_attr(feature = "openapi", schema(value_type = crate::report::AnyReport))]
    pub report: Value,
}

/// The response to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The number of the node's last accepted batch.
    pub batch: i64,
}

/// A report on a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentReport {
    /// The deployment's version.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    #[serde(deserialize_with = "version")]
    pub version: i32,
    pub state: DeploymentState,
    /// The reason, for the project's members.
    #[cfg_attr(feature = "openapi", schema(required, max_length = 1000))]
    #[serde(deserialize_with = "message")]
    pub message: Option<String>,
}

impl ReportKind for DeploymentReport {
    const NAME: &'static str = "deployment";
}

/// The largest number of characters of a message.
const MAX_MESSAGE: usize = 1000;

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let version = i32::deserialize(deserializer)?;
    if version >= 1 { Ok(version) } else { Err(D::Error::custom("version must be at least 1")) }
}

pub(crate) fn message<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let message = Option::<String>::deserialize(deserializer)?;
    match &message {
        Some(text) if text.contains('\0') => Err(D::Error::custom("message contains U+0000")),
        Some(text) if text.chars().count() > MAX_MESSAGE => {
            Err(D::Error::custom(format_args!("message has more than {MAX_MESSAGE} characters")))
        }
        _ => Ok(message),
    }
}

/// The state of a deployment at its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum DeploymentState {
    /// The node serves it to visitors.
    Serving,
    /// Its worker was stopped or exited. The next request starts it again.
    Crashed,
    /// It could not be started. If another version was served before, the node still serves that one.
    Failed,
}

/// Every kind of report, for the schema of [`Report::report`].
#[cfg(feature = "openapi")]
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[schema(as = ReportKind)]
#[expect(dead_code, reason = "describes a schema; nothing constructs it")]
pub(crate) enum AnyReport {
    Database(crate::DatabaseReport),
    Deployment(DeploymentReport),
    Export(crate::ExportReport),
    Generation(crate::GenerationReport),
    Storage(crate::StorageReport),
    DeletedStorage(crate::DeletedStorageReport),
    DeletedBackups(crate::DeletedBackupsReport),
}

impl Report {
    /// Creates a report of kind `K`.
    ///
    /// # Errors
    /// Returns an error if the report cannot be serialized as JSON.
    pub fn new<K: ReportKind>(project: String, report: &K) -> serde_json::Result<Self> {
        Ok(Self { project, kind: K::NAME.to_owned(), report: serde_json::to_value(report)? })
    }
}
