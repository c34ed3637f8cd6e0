//! The part `ai`, and the metering of calls of AI models.
//!
//! A node requests the admission of each call, sends the call to the upstream only if it is admitted, and settles it
//! when it ends. The control plane deducts each call once, however often it is settled. If a call was neither settled
//! nor reported as open for 15 minutes, the control plane ends it.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use validator::Validate;

use crate::desired::DesiredPart;

/// The access of a project to AI models: worker code sees it as `env.ai`. The context `resources` owns this part, and
/// removes it when the grant is revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ai {}

impl DesiredPart for Ai {
    const NAME: &'static str = "ai";
}

/// A request to admit a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AiCallRequest {
    /// A UUID that the node created for this call. It is never admitted twice.
    #[cfg_attr(feature = "openapi", schema(max_length = 36), validate(length(max = 36)))]
    pub id: String,
    /// an id that starts with prj_
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub project: String,
    /// The id of a model in the catalog.
    #[cfg_attr(feature = "openapi", schema(max_length = 200), validate(length(max = 200)))]
    pub model: String,
    /// The estimated number of input tokens.
    pub input_tokens: u32,
    /// The maximum number of output tokens in the request of the worker code; null if the request does not limit it.
    pub max_output_tokens: Option<u32>,
}

/// The decision about a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum AiAdmission {
    /// The node may send the call.
    Admitted(AdmittedCall),
    Refused(RefusedCall),
}

/// An admitted call. It stays open until it is settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct AdmittedCall {
    /// The name of the model at the upstream.
    pub upstream_model: String,
    /// The context length of the model, in tokens. A larger usage is not plausible.
    pub context_tokens: u32,
    /// The maximum number of output tokens that the plan allows; 0 means the model's own limit.
    pub max_output_tokens: u32,
}

/// The reason why a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The catalog has no such model.
    ModelNotFound,
    /// The input is longer than the plan allows.
    ContextLengthExceeded,
    /// The balance of the organization is 0 or less.
    InsufficientCredit,
    /// The project used up its calls of this minute.
    RateLimited,
    /// The project used up its spend of 24 hours.
    SpendLimit,
    /// The project has no access to AI models, or is at another node.
    NotGranted,
}

/// A refused call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedCall {
    pub code: RefusalCode,
    /// Describes the reason to the developer of the worker.
    pub message: String,
    /// The seconds after which the call may be admitted; only for `rate_limited`.
    pub retry_after: Option<u32>,
}

/// The end of calls, and the calls that are still open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AiSettlements {
    #[cfg_attr(feature = "openapi", schema(max_items = 200), validate(length(max = 200), nested))]
    pub ended: Vec<EndedCall>,
    /// Calls that are in progress. A node reports each of them at least every five minutes.
    #[cfg_attr(feature = "openapi", schema(max_items = 200), validate(length(max = 200), nested))]
    pub open: Vec<OpenCall>,
}

/// A call that ended. It may be sent again until the control plane has accepted it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndedCall {
    #[cfg_attr(feature = "openapi", schema(max_length = 36), validate(length(max = 36)))]
    pub id: String,
    /// Null if the call is free: it was not sent, or the upstream failed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub usage: Option<AiUsage>,
}

/// The usage of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AiUsage {
    pub input_tokens: u32,
    pub output_tokens: u32,
    /// Whether the node estimated the usage, because the upstream did not report a plausible one.
    pub estimated: bool,
}

/// A call in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenCall {
    #[cfg_attr(feature = "openapi", schema(max_length = 36), validate(length(max = 36)))]
    pub id: String,
    /// The estimated number of output tokens so far.
    pub output_tokens: u32,
}
