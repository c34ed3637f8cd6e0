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
    /// The token for the provider's component that embeds the portal. Valid for an hour.
    pub token: String,
}

/// The plan of an organization, and the limits of each plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BillingStatus {
    /// Whether the plan ends with the period.
    pub cancel_at_period_end: bool,
    /// Whether billing is configured in this installation.
    pub enabled: bool,
    pub limits: LimitTable,
    /// The end of the paid period.
    pub period_end: Option<Time>,
    pub plan: Plan,
    /// Whether this is a test environment without real charges.
    pub sandbox: bool,
    /// The status of the subscription. Null if the organization never subscribed.
    pub status: Option<SubscriptionStatus>,
}

/// The request to end the plan with its period, or to revert that.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cancellation {
    /// True ends the plan with the current period. False reverts that.
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
    /// The page that embeds the checkout and to which the browser returns. Its address must be below the URL of the API
    /// or of the dashboard.
    pub return_to: String,
}

/// A request for the portal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewPortalVisit {
    /// The page to which the portal links back. Its address must be below the URL of the API or of the dashboard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub return_to: Option<String>,
}

/// The limits of a plan.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanLimits {
    /// Maximum number of calls of AI models by a project per minute.
    pub ai_requests_per_minute: i32,
    /// Maximum spend of a project on AI models in 24 hours, in microcents.
    pub ai_spend_per_day_micro_cents: i64,
    /// Number of days for which scheduled generations of a database are kept.
    pub backup_days: i32,
    /// Maximum size of a bundle as uploaded, in bytes.
    pub bundle_bytes: i64,
    /// Maximum number of entries of a bundle.
    pub bundle_entries: i64,
    /// Maximum size of an unpacked bundle, in bytes.
    pub bundle_unpacked_bytes: i64,
    /// Maximum number of custom hostnames of a project.
    pub custom_hostnames: i32,
    /// Maximum size of the database of a project, in bytes.
    pub database_bytes: i64,
    /// Maximum number of tokens of the database of a project.
    pub database_tokens: i32,
    /// Number of days for which the mail log is kept.
    pub mail_log_days: i32,
    /// Maximum number of mails of a project per hour.
    pub mails_per_hour: i32,
    /// Maximum number of projects per organization.
    pub projects: i32,
    /// Maximum size of the object storage of a project, in bytes.
    pub storage_bytes: i64,
    /// Maximum size of a DNS zone, in bytes.
    pub zone_bytes: i64,
    /// Maximum number of DNS zones per organization.
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
    /// Whether the webhook changed the plan of an organization.
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
