//! The ports that other contexts and the adapters of providers implement.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::audit::Actor;
use kernel::ownership::ZoneProof;
use kernel::{ApiError, OrgId, Secret, Time, ZoneId};
use store::Connection;

use crate::model::Contact;

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    /// `None` if no registrar is configured: organizations can then only import domains.
    pub registrar: Option<Arc<dyn Registrar>>,
    /// `None` if no product for domains is configured: domains are then free of charge.
    pub payments: Option<Arc<dyn Payments>>,
    pub zones: Arc<dyn Zones>,
    pub organizations: Arc<dyn Organizations>,
}

/// The registrar (providers.md section 2). All names are in lowercase punycode, and all prices are in US cents. No call
/// happens inside a transaction. An implementation limits the duration of a call, and the rate of calls: a call that
/// would exceed the registrar's rate limit waits, or fails with [`RegistrarError::NotSent`].
#[async_trait]
pub trait Registrar: Send + Sync {
    /// Returns the offers for at most 50 names, in any order. The registrar may omit a name that it does not sell.
    async fn check(&self, names: &[String]) -> Result<Vec<Offer>, RegistrarError>;

    /// Registers a domain, and enables the transfer lock and the registrar's auto-renewal. Repeated calls with the same
    /// key register the domain once, and charge the platform's account once.
    async fn register(&self, registration: &Registration) -> Result<RegisteredDomain, RegistrarError>;

    /// Reads a domain of the platform's account. Returns `None` if the account does not have it. Only the registrar's
    /// own "not found" means `None`: an HTML page with the status 404 is [`RegistrarError::Unavailable`].
    async fn read(&self, name: &str) -> Result<Option<RegisteredDomain>, RegistrarError>;

    /// Sets the nameservers. Safe to repeat.
    async fn set_nameservers(&self, name: &str, nameservers: &[String]) -> Result<(), RegistrarError>;

    /// Renews a domain. Repeated calls with the same key may renew it repeatedly.
    async fn renew(&self, renewal: &RenewalOrder) -> Result<RegisteredDomain, RegistrarError>;

    /// Sets the transfer lock. The registrar may refuse a change to the current state.
    async fn set_lock(&self, name: &str, locked: bool) -> Result<RegisteredDomain, RegistrarError>;

    /// Returns the code for a transfer to another registrar.
    async fn auth_code(&self, name: &str) -> Result<Secret, RegistrarError>;

    /// Returns the DS records that the registry has for a domain.
    async fn ds(&self, name: &str) -> Result<Vec<DsRecord>, RegistrarError>;

    /// Adds a DS record.
    async fn add_ds(&self, name: &str, ds: &DsRecord) -> Result<(), RegistrarError>;

    /// Removes the DS record with this digest. Succeeds if there is no such record.
    async fn remove_ds(&self, name: &str, digest: &str) -> Result<(), RegistrarError>;
}

/// The offer for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub name: String,
    /// The prices of a name that can be registered now. `None` if it cannot be registered, or only through a transfer
    /// or an auction.
    pub prices: Option<Prices>,
    pub premium: bool,
}

/// The prices of a name, in US cents. They are converted exactly from the registrar's decimal text, and rounded half
/// up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prices {
    /// The first year.
    pub first_year_cents: i64,
    /// Each further year.
    pub renewal_cents: i64,
}

impl Prices {
    /// Returns the total price: the first year, plus the renewal price of each further year. Returns `None` if a price
    /// is negative, or if the total is out of bounds.
    #[must_use]
    pub fn total(&self, years: u8) -> Option<i64> {
        if self.first_year_cents < 0 || self.renewal_cents < 0 {
            return None;
        }
        let further = self.renewal_cents.checked_mul(i64::from(years.saturating_sub(1)))?;
        self.first_year_cents.checked_add(further)
    }
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    pub name: String,
    pub years: u8,
    /// The prices that the registrar offered.
    pub prices: Prices,
    /// Whether the name is premium.
    pub premium: bool,
    pub contact: Contact,
    /// The idempotency key.
    pub key: String,
}

/// A renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalOrder {
    pub name: String,
    pub years: u8,
    /// The total price for all years, in US cents.
    pub total_cents: i64,
    /// The idempotency key.
    pub key: String,
}

/// A domain of the platform's account, as the registrar describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredDomain {
    pub registered_at: Time,
    pub expires_at: Time,
    pub locked: bool,
    pub nameservers: Vec<String>,
    /// The price of each further year, in US cents above 0, if the registrar states it.
    pub renewal_cents: Option<i64>,
    /// The end of the registry's transfer lock, if the registrar states it.
    pub transfer_lock_expires_at: Option<Time>,
}

/// The duration of the registry's transfer lock after a registration or a transfer, in seconds (specification,
/// "Limits").
const TRANSFER_LOCK_SECONDS: i64 = 60 * 24 * 3600;

impl RegisteredDomain {
    /// Returns the end of the registry's transfer lock.
    pub(crate) fn transferable_at(&self) -> Time {
        self.transfer_lock_expires_at.unwrap_or_else(|| self.registered_at.plus_seconds(TRANSFER_LOCK_SECONDS))
    }
}

/// A DS record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DsRecord {
    pub key_tag: u16,
    pub algorithm: u8,
    pub digest_type: u8,
    /// In uppercase hexadecimal.
    pub digest: String,
}

/// An error of the registrar. Its text contains only a status, because the registrar's own text can quote a contact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrarError {
    /// There was no usable response, so the effect is unknown. Examples are a timeout, a 5xx, 401, 403, 429, a
    /// redirect, HTML, or JSON of the wrong shape. Another attempt with the same key may succeed.
    #[error("the registrar is not available: {0}")]
    Unavailable(String),
    /// The request was not sent, because the rate limit is reached. Another attempt with the same key may succeed.
    #[error("the request to the registrar was not sent: {0}")]
    NotSent(String),
    /// The registrar refused the request and it had no effect, but another attempt may succeed later. An example is
    /// 402: the platform's account has no funds. For the same key, the registrar repeats its refusal, so the next
    /// attempt needs a new key.
    #[error("the registrar refused the request for now: {0}")]
    Deferred(String),
    /// The name is not available, or the object already has the requested state (409).
    #[error("the registrar refused the request because of a conflict: {0}")]
    NameUnavailable(String),
    /// The registrar refused a value of the request (400, 404 and 422).
    #[error("the registrar refused the request: {0}")]
    Rejected(String),
}

/// The payments provider (providers.md section 1). No call happens inside a transaction.
#[async_trait]
pub trait Payments: Send + Sync {
    /// Returns whether the organization has saved a payment method.
    async fn has_payment_method(&self, org: OrgId) -> Result<bool, PaymentsError>;

    /// Creates a draft order for the organization and returns its id. Returns `None` if the organization is not a
    /// customer of the provider, so that it has no card. A draft has no effect until [`Self::finalize_order`].
    async fn create_order(&self, order: &NewOrder) -> Result<Option<String>, PaymentsError>;

    /// Finalizes a draft order, which charges the saved payment method. Does not charge an order twice: after a 409 or
    /// 412, the implementation reads the order to learn whether it is paid. Returns [`PaymentsError::NotPayable`] if the
    /// provider ended the order without a payment.
    async fn finalize_order(&self, order: &str) -> Result<Charge, PaymentsError>;

    /// Refunds the full amount of a paid order. Succeeds without another refund if the order is already refunded.
    /// Returns [`Refund::NotPaid`] if the order was never paid.
    async fn refund_order(&self, order: &str, cents: i64) -> Result<Refund, PaymentsError>;
}

/// An order for the product of domains. It is charged without any action by the customer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOrder {
    pub org: OrgId,
    /// The amount in US cents, above 0.
    pub cents: i64,
    /// `domain-purchase` or `domain-renewal`.
    pub purpose: &'static str,
    /// The platform's id of the charge.
    pub reference: String,
}

/// The result of charging an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    Paid,
    /// The payment method is missing or was declined.
    Declined,
}

/// The result of a refund.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refund {
    /// The order is refunded, by this call or an earlier one.
    Refunded,
    /// The order was never paid.
    NotPaid,
}

/// An error of the payments provider. It contains no text of the provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PaymentsError {
    /// Another attempt may succeed.
    #[error("the payments provider is not available: {0}")]
    Unavailable(String),
    /// Further attempts with the same order cannot succeed.
    #[error("the payments provider rejected the request: {0}")]
    Rejected(String),
    /// The order is not paid, and can never be paid.
    #[error("the order cannot be paid: {0}")]
    NotPayable(String),
}

/// The hosted zones.
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the nameservers that must be set at the registrar; `None` if this installation does not host zones.
    fn nameservers(&self) -> Option<Vec<String>>;

    /// Reserves a name for the organization in the caller's transaction. Until the zone exists or the name is released,
    /// no other organization can create a zone with this name, a name above it, or a name below it. Locks the catalog,
    /// so call it before any statement that locks a row.
    async fn reserve(&self, tx: &mut Connection, org: OrgId, name: &str) -> Result<(), ZoneRefusal>;

    /// Releases a reserved name, in the caller's transaction.
    async fn release(&self, tx: &mut Connection, name: &str) -> store::Result<()>;

    /// Creates the zone of a reserved name in the caller's transaction, or finds the organization's existing zone. Then
    /// releases the name. Does not check the plan's limit, because [`Self::reserve`] checked it. Locks the catalog.
    async fn create_reserved(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()>;

    /// Prepares [`Self::create`]. It may take seconds, because it looks up DNS records. Returns the proof that the
    /// organization owns the name, which is needed if zones of other organizations overlap with it.
    async fn prepare(&self, actor: &Actor, org: OrgId, name: &str) -> Result<ZoneProof, ZoneRefusal>;

    /// Creates the zone of an imported domain in the caller's transaction, or finds the organization's existing zone.
    /// `proof` is the result of [`Self::prepare`]. Locks the catalog, so call it before any statement that locks a row.
    async fn create(&self, tx: &mut Connection, org: OrgId, name: &str, proof: &ZoneProof) -> Result<(), ZoneRefusal>;

    /// Returns which of these names overlap with a zone or a reserved name of another organization, or with a domain of
    /// the platform.
    async fn taken(&self, connection: &mut Connection, org: OrgId, names: &[String]) -> store::Result<Vec<String>>;

    /// Returns the DS records that a zone needs at its registry; `None` for a deleted zone.
    async fn ds_wanted(&self, zone: ZoneId) -> store::Result<Option<DsWanted>>;

    /// Records that the caller begins to remove DS records of a zone from the registry, so resolvers may still cache
    /// them.
    async fn ds_removal_begin(&self, zone: ZoneId) -> store::Result<()>;

    /// Records that the registry has no DS record of a zone whose signing ends. The zone becomes unsigned when no cache
    /// can contain a DS record.
    async fn ds_absent(&self, zone: ZoneId) -> store::Result<()>;
}

/// The DS records that a zone needs at its registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DsWanted {
    pub org: OrgId,
    /// The zone's name.
    pub name: String,
    /// The DS records of the keys that sign the zone. Empty while signing ends, and before it begins.
    pub ds: Vec<DsRecord>,
    /// Whether the zone becomes unsigned as soon as the registry has no DS record of it.
    pub is_ending: bool,
}

/// The reason why an organization cannot have a zone.
#[derive(Debug, thiserror::Error)]
pub enum ZoneRefusal {
    /// Another organization has an overlapping zone or reservation. The error's details are those of the response.
    #[error("{0}")]
    Taken(Box<dyn ApiError>),
    /// The name belongs to the platform.
    #[error("overlaps with a domain of this platform: {0}")]
    Platform(String),
    /// Another error of the `dns` context that the caller receives, such as the plan's limit of zones.
    #[error("{0}")]
    Other(Box<dyn ApiError>),
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Locks the organization until the caller's transaction ends. A transaction that also locks a domain locks the
    /// domain first.
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<()>;

    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A domain expires soon (`domain.expiring`).
    Expiring { domain: String, expires_at: Time },
    /// The charge of a renewal was declined (`payment.failed`).
    RenewalDeclined { domain: String },
}
