//! AI credit of an organization.

use kernel::Time;
use serde::{Deserialize, Serialize};
use validator::Validate;

use crate::MICRO_CENTS_PER_CENT;

/// The amounts of AI credit that are for sale, in microcents: 5, 10, 25, 50 and 100 USD.
pub const CREDIT_TIERS: [i64; 5] = [
    500 * MICRO_CENTS_PER_CENT,
    1_000 * MICRO_CENTS_PER_CENT,
    2_500 * MICRO_CENTS_PER_CENT,
    5_000 * MICRO_CENTS_PER_CENT,
    10_000 * MICRO_CENTS_PER_CENT,
];

/// The maximum number of automatic top-ups of an organization per UTC day.
pub const AUTO_TOPUPS_PER_DAY: i64 = 3;

/// The AI credit of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "balanceMicroCents": 499_987_655, "hasPaymentMethod": true, "autoTopupsToday": 0, "autoTopupPerDay": 3,
        "tiersMicroCents": [500_000_000, 1_000_000_000],
    }))
)]
pub struct AiCredit {
    /// The balance in microcents. 1 USD is 100,000,000 microcents. Negative if the last calls cost more than the
    /// remaining credit.
    pub balance_micro_cents: i64,
    /// Whether a payment method is saved at the payments provider. If the provider does not respond within two seconds,
    /// this shows whether auto top-up is on, because auto top-up requires a payment method.
    pub has_payment_method: bool,
    /// The number of automatic top-ups since 00:00 UTC, including declined ones.
    pub auto_topups_today: i64,
    /// The maximum number of automatic top-ups per UTC day.
    pub auto_topup_per_day: i64,
    pub auto_topup: AutoTopup,
    /// The amounts that are for sale, in microcents.
    pub tiers_micro_cents: Vec<i64>,
}

/// The automatic top-up of an organization's AI credit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "enabled": true, "amountMicroCents": 1_000_000_000, "thresholdMicroCents": 200_000_000 }))
)]
pub struct AutoTopup {
    pub enabled: bool,
    /// The amount of each top-up, in microcents. It is kept when auto top-up is turned off. Null if auto top-up was
    /// never turned on.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub amount_micro_cents: Option<i64>,
    /// The threshold in microcents. A top-up starts when a deduction leaves less than this, or when a call is rejected
    /// because no credit is left.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub threshold_micro_cents: Option<i64>,
}

/// A change of the automatic top-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "enabled": true, "amountMicroCents": 1_000_000_000, "thresholdMicroCents": 200_000_000 }))
)]
pub struct AutoTopupChange {
    pub enabled: bool,
    /// The amount of each top-up: one of `tiersMicroCents`. Required to turn auto top-up on, and otherwise ignored.
    pub amount_micro_cents: Option<i64>,
    /// The threshold: more than 0, and less than the amount. Required to turn auto top-up on, and otherwise ignored.
    pub threshold_micro_cents: Option<i64>,
}

/// A request for a checkout of AI credit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({ "microCents": 500_000_000, "returnTo": "https://dashboard.svc.example/billing" }))
)]
pub struct NewCreditCheckout {
    /// The amount: one of `tiersMicroCents`.
    pub micro_cents: i64,
    /// The page that embeds the checkout and to which the browser returns. Its address must be below the URL of the API
    /// or of the dashboard.
    #[validate(length(max = 2000))]
    #[cfg_attr(feature = "openapi", schema(max_length = 2000))]
    pub return_to: String,
}

kernel::words! {
    /// The kind of a change of the balance.
    pub enum LedgerKind {
        /// A call of an AI model. The amount is negative or 0.
        Call = "call",
        /// A paid order of credit. The amount is positive.
        Topup = "topup",
        /// A correction by an operator, or of a call whose estimated cost was deducted first.
        Adjust = "adjust",
    } example Call
}

/// A change of an organization's AI credit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "ledger_id": 2, "amountMicroCents": -12_345, "balanceMicroCents": 499_987_655, "project": "site",
        "model": "swift-small", "inputTokens": 812, "outputTokens": 96, "estimated": false,
    }))
)]
pub struct LedgerRow {
    /// The number of the row within the organization. It increases by 1 with each row.
    #[serde(rename = "ledger_id")]
    pub ledger_id: i64,
    pub kind: LedgerKind,
    /// The amount in microcents.
    pub amount_micro_cents: i64,
    /// The balance after this row, in microcents.
    pub balance_micro_cents: i64,
    /// The name of the project that called the model. Corrections of calls also have it. Null for other rows.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub project: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub model: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub input_tokens: Option<i64>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub output_tokens: Option<i64>,
    /// Whether the tokens are an estimate, because the upstream did not report plausible usage.
    pub estimated: bool,
    pub created_at: Time,
}

/// A page of the ledger, newest row first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "nextBefore": null })))]
pub struct LedgerPage {
    pub items: Vec<LedgerRow>,
    /// The value of `before` for the next page. Null on the last page.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub next_before: Option<i64>,
}
