//! The use cases of certificates. Each submodule is one topic.

mod account;
mod challenge;
mod limits;
mod metrics;
mod node;
mod order;
mod renewal;
mod run;
mod sync;

use std::sync::{Arc, Mutex};

use kernel::OrgId;
use store::{SealedColumn, Store};

use crate::ports::{Authority, Ports};

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[account::CREDENTIALS, node::KEY, order::KEY];

/// The configuration of certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificatesConfig {
    /// The parent domain of default hostnames.
    pub platform_domain: String,
    /// The organization that hosts the zone of the platform's domain. With it, one wildcard certificate covers all
    /// default hostnames. Without it, each default hostname has its own certificate.
    pub platform_org: Option<OrgId>,
    /// The hostname of the API, if the control plane terminates TLS for it.
    pub api_hostname: Option<String>,
}

/// The certificates of an installation. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    store: Store,
    config: Arc<CertificatesConfig>,
    ports: Ports,
    /// Serializes the creation of accounts in this process.
    account_creation: Arc<tokio::sync::Mutex<()>>,
    /// The owners whose orders authorities have limited recently.
    limited: Arc<Mutex<Vec<limits::LimitedOwner>>>,
}

impl Certificates {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, config: CertificatesConfig, ports: Ports) -> Self {
        let (account_creation, limited) = (Arc::default(), Arc::default());
        Self { store, config: Arc::new(config), ports, account_creation, limited }
    }

    /// Returns whether this installation issues certificates.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !self.ports.authorities.is_empty()
    }

    /// Returns the authority with this directory. `None` if it is no longer configured.
    fn authority(&self, directory: &str) -> Option<&Arc<dyn Authority>> {
        self.ports.authorities.iter().find(|authority| authority.directory() == directory)
    }

    /// Returns a random number from 0 to `max`.
    fn random(&self, max: i64) -> i64 {
        max * i64::from(u16::from_be_bytes(self.store.clock_rng().bytes())) / i64::from(u16::MAX)
    }
}
