//! What nodes tell the control plane.

use kernel::ProjectId;
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// How a deployment fares at its node.
    pub enum DeploymentState {
        /// Visitors are shown it.
        Serving = "serving",
        /// Its worker was ended or died. The next request starts it again.
        Crashed = "crashed",
        /// It could not be brought up. If another one was served before, that one still is.
        Failed = "failed",
    }
}

/// What a node has seen of a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeploymentReport {
    pub project: ProjectId,
    /// The deployment's version.
    #[validate(range(min = 1))]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: i32,
    pub state: DeploymentState,
    /// Why, in words for who deployed it.
    #[validate(length(max = 1000))]
    #[cfg_attr(feature = "openapi", schema(required, max_length = 1000))]
    pub message: Option<String>,
}

/// Reports in the order in which the node saw things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Report {
    /// Greater than that of the node's batch before. A number that was taken in is not taken in again, whatever the batch
    /// holds: send the same until it is answered.
    #[validate(range(min = 1))]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub batch: i64,
    /// At most 50.
    #[validate(length(max = 50), nested)]
    #[cfg_attr(feature = "openapi", schema(max_items = 50))]
    pub deployments: Vec<DeploymentReport>,
}

/// The answer to a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The number of the last batch of the node that was taken in.
    pub batch: i64,
}
