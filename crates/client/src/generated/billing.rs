//! Plan, payments and invoices of an organization.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{BillingPage, Plan, Time};
use crate::{Call, Client, Upload, open_enum};

/// A session of the organization as a customer at the payments provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BillingSession {
    pub customer_id: String,
    pub expires_at: Time,
    /// For the provider's component that embeds the portal. Valid for an hour.
    pub token: String,
}

/// The plan of an organization, and the limits of each plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BillingStatus {
    /// Whether the plan ends with the period.
    pub cancel_at_period_end: bool,
    /// Whether billing is configured here.
    pub enabled: bool,
    pub limits: LimitTable,
    /// The end of the paid period.
    pub period_end: Option<Time>,
    pub plan: Plan,
    /// Whether this is a test environment without real charges.
    pub sandbox: bool,
    /// Null for an organization that never subscribed.
    pub status: Option<SubscriptionStatus>,
}

/// Whether the plan ends with its period.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancellation {
    /// True ends the plan with the period; false reverts that.
    pub cancel: bool,
}

/// The limits of both plans.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitTable {
    pub free: PlanLimits,
    pub pro: PlanLimits,
}

/// A request for a checkout of the pro plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewCheckout {
    /// The page that embeds the checkout, and that the browser returns to: below the URL of the API or the dashboard.
    pub return_to: String,
}

/// A request for the portal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewPortalVisit {
    /// The page that the portal links back to: below the URL of the API or the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_to: Option<String>,
}

/// The limits of a plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanLimits {
    /// Calls of AI models per project and minute.
    pub ai_requests_per_minute: i32,
    /// Spend on AI models per project and 24 hours, in microcents.
    pub ai_spend_per_day_micro_cents: i64,
    /// Days for which scheduled generations of a database are kept.
    pub backup_days: i32,
    /// Size of a bundle as uploaded, in bytes.
    pub bundle_bytes: i64,
    /// Entries of a bundle.
    pub bundle_entries: i64,
    /// Size of an unpacked bundle, in bytes.
    pub bundle_unpacked_bytes: i64,
    /// Custom hostnames per project.
    pub custom_hostnames: i32,
    /// Database per project, in bytes.
    pub database_bytes: i64,
    /// Tokens of the database per project.
    pub database_tokens: i32,
    /// Days for which the mail log is kept.
    pub mail_log_days: i32,
    /// Mails per project and hour.
    pub mails_per_hour: i32,
    /// Projects per organization.
    pub projects: i32,
    /// Object storage per project, in bytes.
    pub storage_bytes: i64,
    /// Size of a DNS zone, in bytes.
    pub zone_bytes: i64,
    /// DNS zones per organization.
    pub zones: i32,
}

open_enum! {
    pub enum SubscriptionStatus {
        Active = "active",
        PastDue = "past_due",
        Canceled = "canceled",
    }
}

/// The response to a webhook of the payments provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookResult {
    /// Whether the plan of an organization changed.
    pub applied: bool,
}

impl Client {
    /// End the pro plan with its period, or revert that
    ///
    /// `POST /v1/orgs/{orgSlug}/billing/cancel`
    pub fn billing_cancel(&self, org_slug: &str, body: &Cancellation) -> Call<BillingStatus> {
        self.operation("billing.cancel", Method::POST, &["v1", "orgs", org_slug, "billing", "cancel"])
            .idempotent()
            .json(body)
    }

    /// Start the purchase of the pro plan
    ///
    /// `POST /v1/orgs/{orgSlug}/billing/checkout`
    pub fn billing_check_out(&self, org_slug: &str, body: &NewCheckout) -> Call<BillingPage> {
        self.operation("billing.check_out", Method::POST, &["v1", "orgs", org_slug, "billing", "checkout"])
            .idempotent()
            .json(body)
    }

    /// Create a session at the payments provider, for an embedded portal
    ///
    /// `POST /v1/orgs/{orgSlug}/billing/session`
    pub fn billing_create_session(&self, org_slug: &str) -> Call<BillingSession> {
        self.operation("billing.create_session", Method::POST, &["v1", "orgs", org_slug, "billing", "session"])
            .idempotent()
    }

    /// Get the plan of an organization, and all limits
    ///
    /// `GET /v1/orgs/{orgSlug}/billing`
    pub fn billing_get(&self, org_slug: &str) -> Call<BillingStatus> {
        self.operation("billing.get", Method::GET, &["v1", "orgs", org_slug, "billing"])
    }

    /// Open the portal for payment method, receipts and cancellation, for one visit
    ///
    /// `POST /v1/orgs/{orgSlug}/billing/portal`
    pub fn billing_open_portal(&self, org_slug: &str, body: &NewPortalVisit) -> Call<BillingPage> {
        self.operation("billing.open_portal", Method::POST, &["v1", "orgs", org_slug, "billing", "portal"])
            .idempotent()
            .json(body)
    }

    /// Receive a webhook of the payments provider
    ///
    /// `POST /v1/hooks/payments`
    pub fn billing_receive_webhook(&self, body: Upload) -> Call<WebhookResult> {
        self.operation("billing.receive_webhook", Method::POST, &["v1", "hooks", "payments"]).upload("*/*", body)
    }
}
