//! AI models, and the usage of a project.

use serde::{Deserialize, Serialize};

kernel::words! {
    /// The price class of a model (contract section 8).
    pub enum Lane {
        /// Sold at the list price of its provider.
        Frontier = "frontier",
        /// Sold at our own price.
        Value = "value",
    } example Value
}

/// An AI model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "id": "swift-small", "lane": "value", "inputMicroCentsPerMTok": 6_000_000, "outputMicroCentsPerMTok": 24_000_000,
        "contextTokens": 128_000,
    }))
)]
pub struct AiModel {
    /// The id of the model. The id of a frontier model contains the provider: `provider/model`.
    pub id: String,
    pub lane: Lane,
    /// True for a frontier model, whose prices are those of its provider. Absent for a value model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = bool, required = false))]
    pub list_price: Option<bool>,
    /// The provider. Absent for a value model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub provider: Option<String>,
    /// The price of the input, in microcents per million tokens. 1 USD is 100,000,000 microcents.
    pub input_micro_cents_per_m_tok: i64,
    /// The price of the output, in microcents per million tokens.
    pub output_micro_cents_per_m_tok: i64,
    /// The maximum total of input and output, in tokens.
    pub context_tokens: u32,
}

/// The catalog of AI models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AiModels {
    pub models: Vec<AiModel>,
}

/// The access of a project to AI models, its limits and its usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "granted": true, "balanceMicroCents": 500_000_000, "spentMicroCents24h": 12_345 }))
)]
pub struct AiStatus {
    /// Whether AI is enabled for the project. `env.ai` exists if the live deployment also declares it.
    pub granted: bool,
    pub limits: AiLimits,
    /// The credit of the organization, in microcents. Negative if the last calls cost more than the remaining credit.
    pub balance_micro_cents: i64,
    pub usage24h: AiUsage24h,
    /// The cost of the project's calls in the last 24 hours, in microcents.
    #[serde(rename = "spentMicroCents24h")]
    pub spent_micro_cents_24h: i64,
}

/// The limits of a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "requestsPerMinute": 60, "spendPerDayMicroCents": 500_000_000, "maxInputTokens": 0, "maxOutputTokens": 0,
    }))
)]
pub struct AiLimits {
    /// Maximum number of calls per minute.
    pub requests_per_minute: u32,
    /// Maximum spend in 24 hours, in microcents.
    pub spend_per_day_micro_cents: i64,
    /// Maximum input of a call, in tokens. 0 means the maximum of the model.
    pub max_input_tokens: u32,
    /// Maximum output of a call, in tokens. 0 means the maximum of the model.
    pub max_output_tokens: u32,
}

/// The usage of a project in the last 24 hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "calls": 3, "inputTokens": 812, "outputTokens": 96 })))]
pub struct AiUsage24h {
    pub calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
}
