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
    /// The maximum number of automatic top-ups per UTC day.
    pub auto_topup_per_day: i64,
    /// The number of automatic top-ups since 00:00 UTC, including declined ones.
    pub auto_topups_today: i64,
    /// The balance in microcents. 1 USD is 100,000,000 microcents. Negative if the last calls cost more than the
    /// remaining credit.
    pub balance_micro_cents: i64,
    /// Whether a payment method is saved at the payments provider. If the provider does not respond within two seconds,
    /// this shows whether auto top-up is on, because auto top-up requires a payment method.
    pub has_payment_method: bool,
    /// The amounts that are for sale, in microcents.
    pub tiers_micro_cents: Vec<i64>,
}

/// The limits of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiLimits {
    /// Maximum input of a call, in tokens. 0 means the maximum of the model.
    pub max_input_tokens: i32,
    /// Maximum output of a call, in tokens. 0 means the maximum of the model.
    pub max_output_tokens: i32,
    /// Maximum number of calls per minute.
    pub requests_per_minute: i32,
    /// Maximum spend in 24 hours, in microcents.
    pub spend_per_day_micro_cents: i64,
}

/// An AI model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AiModel {
    /// The maximum total of input and output, in tokens.
    pub context_tokens: i32,
    /// The id of the model. The id of a frontier model contains the provider: `provider/model`.
    pub id: String,
    /// The price of the input, in microcents per million tokens. 1 USD is 100,000,000 microcents.
    pub input_micro_cents_per_m_tok: i64,
    pub lane: Lane,
    /// True for a frontier model, whose prices are those of its provider. Absent for a value model.
    pub list_price: Option<bool>,
    /// The price of the output, in microcents per million tokens.
    pub output_micro_cents_per_m_tok: i64,
    /// The provider. Absent for a value model.
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
    /// The credit of the organization, in microcents. Negative if the last calls cost more than the remaining credit.
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
    /// The amount of each top-up, in microcents. It is kept when auto top-up is turned off. Null if auto top-up was
    /// never turned on.
    pub amount_micro_cents: Option<i64>,
    pub enabled: bool,
    /// The threshold in microcents. A top-up starts when a deduction leaves less than this, or when a call is rejected
    /// because no credit is left.
    pub threshold_micro_cents: Option<i64>,
}

/// A change of the automatic top-up.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AutoTopupChange {
    /// The amount of each top-up: one of `tiersMicroCents`. Required to turn auto top-up on, and otherwise ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount_micro_cents: Option<i64>,
    pub enabled: bool,
    /// The threshold: more than 0, and less than the amount. Required to turn auto top-up on, and otherwise ignored.
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

/// A page of the ledger, newest row first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerPage {
    pub items: Vec<LedgerRow>,
    /// The value of `before` for the next page. Null on the last page.
    pub next_before: Option<i64>,
}

/// A change of an organization's AI credit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LedgerRow {
    /// The amount in microcents.
    pub amount_micro_cents: i64,
    /// The balance after this row, in microcents.
    pub balance_micro_cents: i64,
    pub created_at: Time,
    /// Whether the tokens are an estimate, because the upstream did not report plausible usage.
    pub estimated: bool,
    pub input_tokens: Option<i64>,
    pub kind: LedgerKind,
    /// The number of the row within the organization. It increases by 1 with each row.
    #[serde(rename = "ledger_id")]
    pub ledger_id: i64,
    pub model: Option<String>,
    pub output_tokens: Option<i64>,
    /// The name of the project that called the model. Corrections of calls also have it. Null for other rows.
    pub project: Option<String>,
}

/// A request for a checkout of AI credit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCreditCheckout {
    /// The amount: one of `tiersMicroCents`.
    pub micro_cents: i64,
    /// The page that embeds the checkout and to which the browser returns. Its address must be below the URL of the API
    /// or of the dashboard.
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
