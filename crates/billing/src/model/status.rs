//! The plan of an organization.

use kernel::{Limits, Plan, Secret, Time};
use serde::{Deserialize, Serialize, Serializer};
use validator::Validate;

kernel::words! {
    /// The status of an organization's subscription.
    pub enum SubscriptionStatus {
        /// The subscription is paid, or in its trial period.
        Active = "active",
        /// The last payment failed. The plan stays until the provider ends the subscription.
        PastDue = "past_due",
        /// The subscription has ended.
        Canceled = "canceled",
    } example Active
}

/// The plan of an organization, and the limits of each plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "enabled": true, "sandbox": false, "periodEnd": "2026-12-21T08:00:00.000Z", "cancelAtPeriodEnd": false,
    }))
)]
pub struct BillingStatus {
    /// Whether billing is configured in this installation.
    pub enabled: bool,
    /// Whether this is a test environment without real charges.
    pub sandbox: bool,
    pub plan: Plan,
    /// The status of the subscription. Null if the organization never subscribed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub status: Option<SubscriptionStatus>,
    /// The end of the paid period.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub period_end: Option<Time>,
    /// Whether the plan ends with the period.
    pub cancel_at_period_end: bool,
    pub limits: LimitTable,
}

/// The limits of both plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LimitTable {
    pub free: PlanLimits,
    pub pro: PlanLimits,
}

/// The limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "projects": 3, "bundleBytes": 67_108_864, "bundleUnpackedBytes": 268_435_456, "bundleEntries": 5_000,
        "storageBytes": 1_073_741_824, "mailsPerHour": 20, "mailLogDays": 30, "aiRequestsPerMinute": 20,
        "aiSpendPerDayMicroCents": 500_000_000, "databaseBytes": 536_870_912, "databaseTokens": 5, "backupDays": 7,
        "zones": 20, "zoneBytes": 8_388_608, "customHostnames": 20,
    }))
)]
pub struct PlanLimits {
    /// Maximum number of projects per organization.
    pub projects: u32,
    /// Maximum size of a bundle as uploaded, in bytes.
    pub bundle_bytes: u64,
    /// Maximum size of an unpacked bundle, in bytes.
    pub bundle_unpacked_bytes: u64,
    /// Maximum number of entries of a bundle.
    pub bundle_entries: u64,
    /// Maximum size of the object storage of a project, in bytes.
    pub storage_bytes: u64,
    /// Maximum number of mails of a project per hour.
    pub mails_per_hour: u32,
    /// Number of days for which the mail log is kept.
    pub mail_log_days: u32,
    /// Maximum number of calls of AI models by a project per minute.
    pub ai_requests_per_minute: u32,
    /// Maximum spend of a project on AI models in 24 hours, in microcents.
    pub ai_spend_per_day_micro_cents: i64,
    /// Maximum size of the database of a project, in bytes.
    pub database_bytes: u64,
    /// Maximum number of tokens of the database of a project.
    pub database_tokens: u32,
    /// Number of days for which scheduled generations of a database are kept.
    pub backup_days: u32,
    /// Maximum number of DNS zones per organization.
    pub zones: u32,
    /// Maximum size of a DNS zone, in bytes.
    pub zone_bytes: u64,
    /// Maximum number of custom hostnames of a project.
    pub custom_hostnames: u32,
}

impl From<&Limits> for LimitTable {
    fn from(limits: &Limits) -> Self {
        let of = |plan: Plan| {
            let limits = limits.for_plan(plan);
            PlanLimits {
                projects: limits.projects,
                bundle_bytes: limits.bundle.compressed,
                bundle_unpacked_bytes: limits.bundle.unpacked,
                bundle_entries: limits.bundle.entries,
                storage_bytes: limits.storage_bytes,
                mails_per_hour: limits.mails_per_hour,
                mail_log_days: limits.mail_log_days,
                ai_requests_per_minute: limits.ai_requests_per_minute,
                ai_spend_per_day_micro_cents: limits.ai_spend_per_day_micro_cents,
                database_bytes: limits.database_bytes,
                database_tokens: limits.database_tokens,
                backup_days: limits.backup_days,
                zones: limits.zones,
                zone_bytes: limits.zone_bytes,
                custom_hostnames: limits.custom_hostnames,
            }
        };
        Self { free: of(Plan::Free), pro: of(Plan::Pro) }
    }
}

/// A request for a checkout of the pro plan.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "returnTo": "https://dashboard.svc.example/billing" })))]
pub struct NewCheckout {
    /// The page that embeds the checkout and to which the browser returns. Its address must be below the URL of the API
    /// or of the dashboard.
    #[validate(length(max = 2000))]
    #[cfg_attr(feature = "openapi", schema(max_length = 2000))]
    pub return_to: String,
}

/// The URL of a checkout or of the portal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "url": "https://pay.example/checkout/co_1" })))]
pub struct BillingPage {
    /// The URL, which is valid for one visit.
    #[serde(serialize_with = "reveal")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub url: Secret,
}

/// A request for the portal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "returnTo": "https://dashboard.svc.example/billing" })))]
pub struct NewPortalVisit {
    /// The page to which the portal links back. Its address must be below the URL of the API or of the dashboard.
    #[validate(length(max = 2000))]
    #[cfg_attr(feature = "openapi", schema(max_length = 2000))]
    pub return_to: Option<String>,
}

/// A session of the organization as a customer at the payments provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "token": "polar_cst_EXAMPLE", "customerId": "cus_1", "expiresAt": "2026-01-31T13:00:00.000Z",
    }))
)]
pub struct BillingSession {
    /// The token for the provider's component that embeds the portal. Valid for an hour.
    #[serde(serialize_with = "reveal")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub token: Secret,
    pub customer_id: String,
    pub expires_at: Time,
}

fn reveal<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

/// The request to end the plan with its period, or to revert that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "cancel": true })))]
pub struct Cancellation {
    /// True ends the plan with the current period. False reverts that.
    pub cancel: bool,
}

/// The response to a webhook of the payments provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "applied": true })))]
pub struct WebhookResult {
    /// Whether the webhook changed the plan of an organization.
    pub applied: bool,
}
