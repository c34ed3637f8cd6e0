//! Domains of an organization: purchase, import, renewal and transfer away.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Email, Time, UserId};
use crate::{Call, Client, Page, Paging, open_enum};

/// The registrant of a domain, who is also its administrative, technical and billing contact.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contact {
    pub city: ContactText,
    pub country: CountryCode,
    /// The registry sends its verification mail to this address.
    pub email: Email,
    pub first_name: ContactText,
    pub last_name: ContactText,
    /// The organization, if the registrant is not a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<ContactText>,
    pub phone: Phone,
    pub postal_code: ContactText,
    /// The state or province, where addresses have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<ContactText>,
    pub street: ContactText,
}

/// 1 to 255 characters without control characters
pub type ContactText = String;

/// an assigned country code of two capital letters (ISO 3166-1 alpha-2)
pub type CountryCode = String;

/// A domain of an organization. The registrar is the source of truth for expiry, lock and nameservers; `sync` reads
/// them again.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Whether the organization wants automatic renewals and pays for them.
    pub auto_renew: bool,
    pub created_at: Time,
    /// Null for an imported domain, and during the purchase.
    pub expires_at: Option<Time>,
    /// Whether the registrar refuses a transfer to another registrar. Null for an imported domain, during the purchase,
    /// and if the result of a change is unknown: then set the lock again, or sync.
    pub locked: Option<bool>,
    /// In lowercase punycode.
    pub name: String,
    /// The nameservers that are set at the registrar. For an imported domain: the nameservers that you must set at its
    /// registrar.
    pub nameservers: Vec<String>,
    /// Null for an imported domain, and during the purchase.
    pub registered_at: Option<Time>,
    pub state: DomainState,
    /// The end of the registry's transfer lock, 60 days after a registration or a transfer. Null when the lock has
    /// ended.
    pub transferable_at: Option<Time>,
}

/// The code that another registrar needs for a transfer. `Debug` omits it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainAuthCode {
    pub auth_code: String,
    /// The end of the registry's transfer lock. Null when the lock has ended.
    pub transferable_at: Option<Time>,
}

/// Whether the organization wants automatic renewals and pays for them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainAutoRenew {
    pub enabled: bool,
}

/// A change of a domain.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainChange {
    /// The user who made the change; null for a change at the registrar, or by the platform.
    pub actor: Option<UserId>,
    pub at: Time,
    /// Details of the event. They never contain a contact or a transfer code.
    pub data: serde_json::Map<String, serde_json::Value>,
    /// The name of the audit event, or `domain.sync` for a change at the registrar.
    pub event: String,
}

/// Names to check.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainCheck {
    pub names: Vec<String>,
}

/// A domain, with its latest changes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainDetail {
    /// Whether the organization wants automatic renewals and pays for them.
    pub auto_renew: bool,
    pub created_at: Time,
    /// Null for an imported domain, and during the purchase.
    pub expires_at: Option<Time>,
    /// The last 50 changes, newest first.
    pub history: Vec<DomainChange>,
    /// Whether the registrar refuses a transfer to another registrar. Null for an imported domain, during the purchase,
    /// and if the result of a change is unknown: then set the lock again, or sync.
    pub locked: Option<bool>,
    /// In lowercase punycode.
    pub name: String,
    /// The nameservers that are set at the registrar. For an imported domain: the nameservers that you must set at its
    /// registrar.
    pub nameservers: Vec<String>,
    /// Null for an imported domain, and during the purchase.
    pub registered_at: Option<Time>,
    /// The price of a further year that the registrar stated last, in US cents. Null if it is not known.
    pub renewal_cents: Option<i64>,
    pub state: DomainState,
    /// The end of the registry's transfer lock, 60 days after a registration or a transfer. Null when the lock has
    /// ended.
    pub transferable_at: Option<Time>,
    /// The sum of the unbilled renewals of this domain, in US cents: the registrar made them while auto-renewal was
    /// off. Turning it on charges them.
    pub unbilled_cents: i64,
    /// The sum of the unpaid renewals that a renewal of this domain charges first, in US cents: the declined renewals
    /// of the organization, and the unbilled ones of this domain.
    pub unpaid_cents: i64,
}

/// A domain that is registered elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainImport {
    /// One label under a public suffix, in Unicode or punycode.
    pub name: String,
}

/// Whether the registrar refuses transfers to other registrars.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainLock {
    pub locked: bool,
}

/// The availability and the prices of a name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainOffer {
    pub available: bool,
    /// In lowercase punycode.
    pub name: String,
    /// Whether the registry sells the name at a special price. Its purchase must state `expectedPriceCents`.
    pub premium: bool,
    /// The price of the first year, in US cents. Null if the name is not available.
    pub price_cents: Option<i64>,
    /// Null if the name is available.
    pub reason: Option<UnavailableReason>,
    /// The price of each further year, in US cents. Null if the name is not available.
    pub renewal_cents: Option<i64>,
}

/// The result of an availability check.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainOffers {
    /// One result per name, in the order of the request. A name that is requested twice has one result.
    pub results: Vec<DomainOffer>,
}

pub type DomainPage = Page<Domain>;

/// A purchase.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainPurchase {
    /// True by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_renew: Option<bool>,
    pub contact: Contact,
    /// The total price that the caller accepts, in US cents: the first year, and the renewal price for each further
    /// year. Required for a premium name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_price_cents: Option<i64>,
    /// One label under a public suffix, in Unicode or punycode.
    pub name: String,
    /// 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub years: Option<i32>,
}

/// A renewal.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainRenewal {
    pub years: i32,
}

open_enum! {
    pub enum DomainState {
        Registering = "registering",
        Active = "active",
        External = "external",
        Expired = "expired",
        TransferredOut = "transferred_out",
    }
}

/// a telephone number in the format E.164: +, the country code and the number, 7 to 15 digits in all
pub type Phone = String;

open_enum! {
    pub enum UnavailableReason {
        Registered = "registered",
        Unsupported = "unsupported",
        Reserved = "reserved",
    }
}

impl Client {
    /// Get the availability and the prices of names
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/check`
    pub fn domains_check(&self, org_slug: &str, body: &DomainCheck) -> Call<DomainOffers> {
        self.operation("domains.check", Method::POST, &["v1", "orgs", org_slug, "domains", "check"])
            .idempotent()
            .json(body)
    }

    /// Get the code for a transfer to another registrar
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/{domainName}/auth-code`
    pub fn domains_create_auth_code(&self, org_slug: &str, domain_name: &str) -> Call<DomainAuthCode> {
        self.operation(
            "domains.create_auth_code",
            Method::POST,
            &["v1", "orgs", org_slug, "domains", domain_name, "auth-code"],
        )
        .idempotent()
    }

    /// Get a domain with its last 50 changes
    ///
    /// `GET /v1/orgs/{orgSlug}/domains/{domainName}`
    pub fn domains_get(&self, org_slug: &str, domain_name: &str) -> Call<DomainDetail> {
        self.operation("domains.get", Method::GET, &["v1", "orgs", org_slug, "domains", domain_name])
    }

    /// Import a domain that is registered elsewhere (201), or return the imported one (200)
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/import`
    pub fn domains_import(&self, org_slug: &str, body: &DomainImport) -> Call<Domain> {
        self.operation("domains.import", Method::POST, &["v1", "orgs", org_slug, "domains", "import"])
            .idempotent()
            .json(body)
    }

    /// List the domains of an organization, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/domains`
    pub fn domains_list(&self, org_slug: &str, query: &Paging) -> Call<DomainPage> {
        self.operation("domains.list", Method::GET, &["v1", "orgs", org_slug, "domains"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Buy a domain (201), or return the one that was bought (200)
    ///
    /// `POST /v1/orgs/{orgSlug}/domains`
    pub fn domains_purchase(&self, org_slug: &str, body: &DomainPurchase) -> Call<Domain> {
        self.operation("domains.purchase", Method::POST, &["v1", "orgs", org_slug, "domains"]).idempotent().json(body)
    }

    /// Renew a domain
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/{domainName}/renew`
    pub fn domains_renew(&self, org_slug: &str, domain_name: &str, body: &DomainRenewal) -> Call<Domain> {
        self.operation("domains.renew", Method::POST, &["v1", "orgs", org_slug, "domains", domain_name, "renew"])
            .idempotent()
            .json(body)
    }

    /// Set whether a domain is to be renewed automatically
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/{domainName}/auto-renew`
    pub fn domains_set_auto_renew(&self, org_slug: &str, domain_name: &str, body: &DomainAutoRenew) -> Call<Domain> {
        self.operation(
            "domains.set_auto_renew",
            Method::POST,
            &["v1", "orgs", org_slug, "domains", domain_name, "auto-renew"],
        )
        .idempotent()
        .json(body)
    }

    /// Lock a domain against transfers to other registrars, or unlock it
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/{domainName}/lock`
    pub fn domains_set_lock(&self, org_slug: &str, domain_name: &str, body: &DomainLock) -> Call<Domain> {
        self.operation("domains.set_lock", Method::POST, &["v1", "orgs", org_slug, "domains", domain_name, "lock"])
            .idempotent()
            .json(body)
    }

    /// Read expiry, lock and nameservers of a domain at the registrar
    ///
    /// `POST /v1/orgs/{orgSlug}/domains/{domainName}/sync`
    pub fn domains_sync(&self, org_slug: &str, domain_name: &str) -> Call<Domain> {
        self.operation("domains.sync", Method::POST, &["v1", "orgs", org_slug, "domains", domain_name, "sync"])
            .idempotent()
    }
}
