//! Domains.

use kernel::{DomainId, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

use super::Contact;

kernel::words! {
    /// The state of a domain.
    pub enum DomainState {
        /// Its purchase is in progress. The same request resumes it.
        Registering = "registering",
        /// Registered here, and not expired.
        Active = "active",
        /// Imported: registered elsewhere, with its zone here.
        External = "external",
        /// Registered here, but expired.
        Expired = "expired",
        /// The transfer to another registrar is complete. The zone still exists.
        TransferredOut = "transferred_out",
    } example Active
}

impl DomainState {
    /// Returns whether the domain is in the platform's account at the registrar, so that it can be renewed, locked and
    /// transferred.
    #[must_use]
    pub const fn is_managed(self) -> bool {
        matches!(self, Self::Active | Self::Expired)
    }
}

/// A domain of an organization. The registrar is the source of truth for expiry, lock and nameservers; `sync` reads
/// them again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "name": "example.org",
    "locked": true,
    "nameservers": ["ns1.example.net", "ns2.example.net", "ns3.example.net"],
    "autoRenew": true,
})))]
pub struct Domain {
    /// The pagination key of the list. Not part of the API, because its paths contain the name.
    #[serde(skip)]
    pub id: DomainId,
    /// In lowercase punycode.
    pub name: String,
    pub state: DomainState,
    /// Null for an imported domain, and during the purchase.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub expires_at: Option<Time>,
    /// Whether the registrar refuses a transfer to another registrar. Null for an imported domain, during the purchase,
    /// and if the result of a change is unknown: then set the lock again, or sync.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub locked: Option<bool>,
    /// The nameservers that are set at the registrar. For an imported domain: the nameservers that you must set at its
    /// registrar.
    pub nameservers: Vec<String>,
    /// Whether the organization wants automatic renewals and pays for them.
    pub auto_renew: bool,
    /// The end of the registry's transfer lock, 60 days after a registration or a transfer. Null when the lock has
    /// ended.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub transferable_at: Option<Time>,
    /// Null for an imported domain, and during the purchase.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub registered_at: Option<Time>,
    pub created_at: Time,
}

/// A domain, with its latest changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DomainDetail {
    #[serde(flatten)]
    pub domain: Domain,
    /// The price of a further year that the registrar stated last, in US cents. Null if it is not known.
    #[cfg_attr(feature = "openapi", schema(required, example = 1499))]
    pub renewal_cents: Option<i64>,
    /// The sum of the unpaid renewals that a renewal of this domain charges first, in US cents: the declined renewals
    /// of the organization, and the unbilled ones of this domain.
    #[cfg_attr(feature = "openapi", schema(example = 0))]
    pub unpaid_cents: i64,
    /// The sum of the unbilled renewals of this domain, in US cents: the registrar made them while auto-renewal was
    /// off. Turning it on charges them.
    #[cfg_attr(feature = "openapi", schema(example = 0))]
    pub unbilled_cents: i64,
    /// The last 50 changes, newest first.
    pub history: Vec<DomainChange>,
}

/// A change of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "event": "domain.lock", "data": { "locked": true } })))]
pub struct DomainChange {
    pub at: Time,
    /// The name of the audit event, or `domain.sync` for a change at the registrar.
    pub event: String,
    /// The user who made the change; null for a change at the registrar, or by the platform.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub actor: Option<UserId>,
    /// Details of the event. They never contain a contact or a transfer code.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub data: serde_json::Value,
}

/// Names to check.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DomainCheck {
    #[validate(length(min = 1, max = 20))]
    #[cfg_attr(feature = "openapi", schema(format = "registrable-domain", min_items = 1, max_items = 20))]
    #[cfg_attr(feature = "openapi", schema(example = json!(["example.org"])))]
    pub names: Vec<String>,
}

/// The result of an availability check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DomainOffers {
    /// One result per name, in the order of the request. A name that is requested twice has one result.
    pub results: Vec<DomainOffer>,
}

kernel::words! {
    /// The reason why a name is not available.
    pub enum UnavailableReason {
        /// The registrar does not sell the name, usually because it is registered.
        Registered = "registered",
        /// The registrar does not sell names under this public suffix.
        Unsupported = "unsupported",
        /// A purchase of the name is in progress on this platform, another organization has a zone that overlaps with
        /// it, or it overlaps with a domain of the platform.
        Reserved = "reserved",
    } example Registered
}

/// The availability and the prices of a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "name": "example.org", "available": true, "reason": null, "priceCents": 1299, "renewalCents": 1499, "premium": false,
})))]
pub struct DomainOffer {
    /// In lowercase punycode.
    pub name: String,
    pub available: bool,
    /// Null if the name is available.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub reason: Option<UnavailableReason>,
    /// The price of the first year, in US cents. Null if the name is not available.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub price_cents: Option<i64>,
    /// The price of each further year, in US cents. Null if the name is not available.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub renewal_cents: Option<i64>,
    /// Whether the registry sells the name at a special price. Its purchase must state `expectedPriceCents`.
    pub premium: bool,
}

/// A purchase.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "name": "example.org",
    "contact": {
        "firstName": "Ada", "lastName": "Lovelace", "email": "ada@example.org", "phone": "+4930123456",
        "street": "Unter den Linden 1", "city": "Berlin", "postalCode": "10117", "country": "DE",
    },
    "years": 1,
    "expectedPriceCents": 1299,
})))]
pub struct DomainPurchase {
    /// One label under a public suffix, in Unicode or punycode.
    #[cfg_attr(feature = "openapi", schema(format = "registrable-domain"))]
    pub name: String,
    pub contact: Contact,
    /// 1 by default.
    #[serde(default)]
    #[validate(range(min = 1, max = 10))]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10))]
    pub years: Option<u8>,
    /// True by default.
    #[serde(default)]
    pub auto_renew: Option<bool>,
    /// The total price that the caller accepts, in US cents: the first year, and the renewal price for each further
    /// year. Required for a premium name.
    #[serde(default)]
    #[validate(range(min = 0, max = 100_000_000))]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100_000_000))]
    pub expected_price_cents: Option<i64>,
}

/// A domain that is registered elsewhere.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "example.org" })))]
pub struct DomainImport {
    /// One label under a public suffix, in Unicode or punycode.
    #[cfg_attr(feature = "openapi", schema(format = "registrable-domain"))]
    pub name: String,
}

/// A renewal.
#[derive(Debug, Clone, Copy, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "years": 1 })))]
pub struct DomainRenewal {
    #[validate(range(min = 1, max = 10))]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10))]
    pub years: u8,
}

/// Whether the organization wants automatic renewals and pays for them.
#[derive(Debug, Clone, Copy, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "enabled": true })))]
pub struct DomainAutoRenew {
    pub enabled: bool,
}

/// Whether the registrar refuses transfers to other registrars.
#[derive(Debug, Clone, Copy, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "locked": false })))]
pub struct DomainLock {
    pub locked: bool,
}

/// The code that another registrar needs for a transfer. `Debug` omits it.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "authCode": "Xy7-pQ2-aB9", "transferableAt": null })))]
pub struct DomainAuthCode {
    pub auth_code: String,
    /// The end of the registry's transfer lock. Null when the lock has ended.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub transferable_at: Option<Time>,
}

impl std::fmt::Debug for DomainAuthCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DomainAuthCode").field("transferable_at", &self.transferable_at).finish_non_exhaustive()
    }
}
