//! AI models, which worker code calls through `env.ai`, and prepaid credit.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{BillingPage, Time};
use crate::{Call, Client, open_enum};

/// The AI credit of an organization.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiCredit {
    pub auto_topup: AutoTopup,
    /// The limit of automatic top-ups per UTC day.
    pub auto_topup_per_day: i64,
    /// The automatic top-ups since 00:00 UTC, also those that were declined.
    pub auto_topups_today: i64,
    /// In microcents. 1 USD is 100,000,000 microcents. Negative if the last calls cost more than was left.
    pub balance_micro_cents: i64,
    /// Whether a payment method is saved at the payments provider. If the provider does not answer within two seconds:
    /// whether auto top-up is on, which requires one.
    pub has_payment_method: bool,
    /// The amounts that are sold, in microcents.
    pub tiers_micro_cents: Vec<i64>,
}

/// The limits of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiLimits {
    /// Input of a call, in tokens; 0 if the model decides.
    pub max_input_tokens: i32,
    /// Output of a call, in tokens; 0 if the model decides.
    pub max_output_tokens: i32,
    /// Calls per minute.
    pub requests_per_minute: i32,
    /// Spend in 24 hours, in microcents.
    pub spend_per_day_micro_cents: i64,
}

/// An AI model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiModel {
    /// The longest input and output together, in tokens.
    pub context_tokens: i32,
    /// With the provider's name for a frontier model: `provider/model`.
    pub id: String,
    /// The price of the input, in microcents per million tokens. 1 USD is 100,000,000 microcents.
    pub input_micro_cents_per_m_tok: i64,
    pub lane: Lane,
    /// True for a frontier model: its prices are those of its provider. Absent for a value model.
    pub list_price: Option<bool>,
    /// The price of the output, in microcents per million tokens.
    pub output_micro_cents_per_m_tok: i64,
    /// Absent for a value model.
    pub provider: Option<String>,
}

/// The catalog of AI models.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiModels {
    pub models: Vec<AiModel>,
}

/// The access of a project to AI models, its limits and its usage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiStatus {
    /// The credit of the organization, in microcents. Negative if the last calls cost more than was left.
    pub balance_micro_cents: i64,
    /// Whether AI is enabled for the project. `env.ai` exists if the live deployment also declares it.
    pub granted: bool,
    pub limits: AiLimits,
    /// The cost of the project's calls in the last 24 hours, in microcents.
    pub spent_micro_cents24h: i64,
    pub usage24h: AiUsage24h,
}

/// The usage of a project in the last 24 hours.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiUsage24h {
    pub calls: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
}

/// The automatic top-up of an organization's AI credit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoTopup {
    /// The amount of each top-up, in microcents. Kept when it is turned off; null if it was never turned on.
    pub amount_micro_cents: Option<i64>,
    pub enabled: bool,
    /// In microcents. A deduction that leaves less than this starts a top-up, and so does a call that is refused because
    /// no credit is left.
    pub threshold_micro_cents: Option<i64>,
}

/// A change of the automatic top-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoTopupChange {
    /// One of `tiersMicroCents`. Required to turn it on, and otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_micro_cents: Option<i64>,
    pub enabled: bool,
    /// More than 0, and less than the amount. Required to turn it on, and otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold_micro_cents: Option<i64>,
}

open_enum! {
    pub enum Lane {
        Frontier = "frontier",
        Value = "value",
    }
}

open_enum! {
    pub enum LedgerKind {
        Call = "call",
        Topup = "topup",
        Adjust = "adjust",
    }
}

/// A page of the ledger, the newest row first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerPage {
    pub items: Vec<LedgerRow>,
    /// The `before` of the next page; null on the last page.
    pub next_before: Option<i64>,
}

/// A change of an organization's AI credit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerRow {
    /// In microcents.
    pub amount_micro_cents: i64,
    /// The balance after this row, in microcents.
    pub balance_micro_cents: i64,
    pub created_at: Time,
    /// Whether the tokens are an estimate, because the upstream did not report a plausible usage.
    pub estimated: bool,
    pub input_tokens: Option<i64>,
    pub kind: LedgerKind,
    /// Rises by 1 with each row of the organization.
    #[serde(rename = "ledger_id")]
    pub ledger_id: i64,
    pub model: Option<String>,
    pub output_tokens: Option<i64>,
    /// The name of the project that called the model; null for other rows. Also of a corrected call.
    pub project: Option<String>,
}

/// A request for a checkout of AI credit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCreditCheckout {
    /// The amount: one of `tiersMicroCents`.
    pub micro_cents: i64,
    /// The page that embeds the checkout, and that the browser returns to: below the URL of the API or the dashboard.
    pub return_to: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct AiListLedgerQuery {
    /// The largest number of items to return. Values above 200 count as 200.
    pub limit: Option<i64>,
    /// The `nextBefore` of the previous page.
    pub before: Option<i64>,
}

impl Client {
    /// Start the purchase of AI credit
    ///
    /// `POST /v1/orgs/{orgSlug}/ai/credit/checkout`
    pub fn ai_check_out_credit(&self, org_slug: &str, body: &NewCreditCheckout) -> Call<BillingPage> {
        self.operation("ai.check_out_credit", Method::POST, &["v1", "orgs", org_slug, "ai", "credit", "checkout"])
            .idempotent()
            .json(body)
    }

    /// Get the AI access of a project, with limits and usage
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/ai`
    pub fn ai_get(&self, org_slug: &str, project_name: &str) -> Call<AiStatus> {
        self.operation("ai.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "ai"])
    }

    /// Get the AI credit of an organization, and its auto top-up
    ///
    /// `GET /v1/orgs/{orgSlug}/ai/credit`
    pub fn ai_get_credit(&self, org_slug: &str) -> Call<AiCredit> {
        self.operation("ai.get_credit", Method::GET, &["v1", "orgs", org_slug, "ai", "credit"])
    }

    /// Enable AI for a project
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/ai`
    pub fn ai_grant(&self, org_slug: &str, project_name: &str) -> Call<AiStatus> {
        self.operation("ai.grant", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "ai"]).idempotent()
    }

    /// List the changes of the AI credit, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/ai/ledger`
    pub fn ai_list_ledger(&self, org_slug: &str, query: &AiListLedgerQuery) -> Call<LedgerPage> {
        self.operation("ai.list_ledger", Method::GET, &["v1", "orgs", org_slug, "ai", "ledger"])
            .query("limit", query.limit.as_ref())
            .query("before", query.before.as_ref())
    }

    /// List the AI models and their prices
    ///
    /// `GET /v1/ai/models`
    pub fn ai_models(&self) -> Call<AiModels> {
        self.operation("ai.models", Method::GET, &["v1", "ai", "models"])
    }

    /// Disable AI for a project
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/ai`
    pub fn ai_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation("ai.revoke", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name, "ai"])
    }

    /// Turn auto top-up on or off
    ///
    /// `PUT /v1/orgs/{orgSlug}/ai/autotopup`
    pub fn ai_set_auto_topup(&self, org_slug: &str, body: &AutoTopupChange) -> Call<Option<AiCredit>> {
        self.operation("ai.set_auto_topup", Method::PUT, &["v1", "orgs", org_slug, "ai", "autotopup"]).json(body)
    }
}
