//! The use cases of domains. Each submodule is one topic.

use std::sync::Arc;
use std::time::Duration;

use kernel::audit::Actor;
use kernel::{DomainId, OrgId, Page, Paging};
use store::Store;

use crate::error::DomainError;
use crate::model::{
    Domain, DomainAuthCode, DomainAutoRenew, DomainCheck, DomainDetail, DomainImport, DomainLock, DomainOffers,
    DomainPurchase, DomainRenewal,
};
use crate::ports::Ports;

type Result<T> = std::result::Result<T, DomainError>;

/// The configuration of domains.
#[derive(Debug, Clone)]
pub struct DomainsConfig {
    /// The longest time that a request waits for a purchase or a renewal. The rest of the ten seconds of a request is for
    /// the response.
    pub request_timeout: Duration,
}

impl Default for DomainsConfig {
    fn default() -> Self {
        Self { request_timeout: Duration::from_secs(8) }
    }
}

/// A domain, and whether the request created it: 201 if so, otherwise 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub domain: Domain,
    pub is_new: bool,
}

/// The service of domains. Cheap to clone.
#[derive(Clone)]
pub struct Domains {
    store: Store,
    config: Arc<DomainsConfig>,
    ports: Ports,
}

/// The use cases of the API. A `name` of a path is accepted in every spelling; an invalid one is [`DomainError::NotFound`].
impl Domains {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, config: DomainsConfig, ports: Ports) -> Self {
        Self { store, config: Arc::new(config), ports }
    }

    /// Lists the domains of an organization, newest first.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn list(&self, org: OrgId, paging: &Paging<DomainId>) -> Result<Page<Domain>> {
        todo!("{org} {paging:?}")
    }

    /// Returns a domain with its last changes.
    ///
    /// # Errors
    /// [`DomainError::NotFound`].
    pub async fn get(&self, org: OrgId, name: &str) -> Result<DomainDetail> {
        todo!("{org} {name}")
    }

    /// Returns availability and prices. Spends one request at the registrar.
    ///
    /// # Errors
    /// [`DomainError::Field`] for an invalid name, [`DomainError::RegistrarNotConfigured`],
    /// [`DomainError::RegistrarFailed`].
    pub async fn check(&self, org: OrgId, check: DomainCheck) -> Result<DomainOffers> {
        todo!("{org} {check:?}")
    }

    /// Buys a domain, or continues the purchase that an earlier request began. Returns within the request timeout. The
    /// actor's idempotency claim is not committed, so that a repeated request resumes the purchase.
    ///
    /// # Errors
    /// [`DomainError::Field`], [`DomainError::PaymentFailed`], [`DomainError::Taken`], [`DomainError::NameUnavailable`],
    /// [`DomainError::PriceChanged`], [`DomainError::RegistrarRejected`]: the purchase ended, the name is free, and a
    /// charge is refunded. [`DomainError::Incomplete`], [`DomainError::RegistrarFailed`]: the name stays reserved, and
    /// the purchase continues. [`DomainError::RegistrarNotConfigured`], [`DomainError::DnsNotConfigured`],
    /// [`DomainError::Zone`].
    pub async fn purchase(&self, actor: &Actor, org: OrgId, purchase: DomainPurchase) -> Result<Created> {
        todo!("{actor:?} {org} {purchase:?}")
    }

    /// Imports a domain that is registered elsewhere: creates its zone. Calls no registrar.
    ///
    /// # Errors
    /// [`DomainError::Field`], [`DomainError::Taken`], [`DomainError::DnsNotConfigured`], [`DomainError::Zone`].
    pub async fn import(&self, actor: &Actor, org: OrgId, import: DomainImport) -> Result<Created> {
        todo!("{actor:?} {org} {import:?}")
    }

    /// Renews a domain, and enqueues its charge. A request after [`DomainError::RegistrarFailed`] continues the same
    /// renewal.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarRejected`],
    /// [`DomainError::RegistrarFailed`], [`DomainError::RegistrarNotConfigured`].
    pub async fn renew(&self, actor: &Actor, org: OrgId, name: &str, renewal: DomainRenewal) -> Result<Domain> {
        todo!("{actor:?} {org} {name} {renewal:?}")
    }

    /// Sets whether the organization wants the domain to be renewed.
    ///
    /// # Errors
    /// [`DomainError::NotFound`].
    pub async fn set_auto_renew(
        &self,
        actor: &Actor,
        org: OrgId,
        name: &str,
        change: DomainAutoRenew,
    ) -> Result<Domain> {
        todo!("{actor:?} {org} {name} {change:?}")
    }

    /// Sets the transfer lock at the registrar.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarFailed`],
    /// [`DomainError::RegistrarNotConfigured`].
    pub async fn set_lock(&self, actor: &Actor, org: OrgId, name: &str, change: DomainLock) -> Result<Domain> {
        todo!("{actor:?} {org} {name} {change:?}")
    }

    /// Returns the code for a transfer to another registrar. Neither stored nor logged.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::NotManaged`], [`DomainError::RegistrarFailed`],
    /// [`DomainError::RegistrarNotConfigured`].
    pub async fn auth_code(&self, actor: &Actor, org: OrgId, name: &str) -> Result<DomainAuthCode> {
        todo!("{actor:?} {org} {name}")
    }

    /// Reads the domain at the registrar again. An imported domain, and one whose purchase is in progress, stays as it is.
    ///
    /// # Errors
    /// [`DomainError::NotFound`], [`DomainError::RegistrarFailed`], [`DomainError::RegistrarNotConfigured`].
    pub async fn sync(&self, actor: &Actor, org: OrgId, name: &str) -> Result<Domain> {
        todo!("{actor:?} {org} {name}")
    }
}

/// Background work, for `apps/server/src/wiring/domains.rs`. Several processes share it.
impl Domains {
    /// Continues purchases and renewals whose process died or whose provider failed. Run it every second.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn resume(&self) -> Result<()> {
        todo!()
    }

    /// Reads the domains whose daily reading is due at the registrar, a few at a time. Run it every minute. Does nothing
    /// without a registrar.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn sync_due(&self) -> Result<()> {
        todo!()
    }

    /// Notifies organizations of domains that expire in 30, 14, 7 or 1 days. Run it every hour.
    ///
    /// # Errors
    /// [`DomainError::Store`].
    pub async fn notify_expiring(&self) -> Result<()> {
        todo!()
    }
}
