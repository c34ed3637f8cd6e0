//! The use cases of domains. Each submodule is one topic.

mod change;
mod charge;
mod ds;
mod expiry;
mod import;
mod purchase;
mod purchase_saga;
mod read;
mod renewal;
mod resume;
mod sync;

use std::sync::Arc;
use std::time::Duration;

use kernel::audit::Event;
use kernel::{AbuseLimits, DomainId, OrgId, Time, UserId};
use store::saga::Attempt;
use store::{Connection, Error, Quota, SealedColumn, Store};
use tokio::time::Instant;

use crate::error::DomainError;
use crate::model::{Domain, DomainName, DomainState};
use crate::ports::{Ports, Registrar, RegistrarError};
use crate::repository::{DomainRecord, DomainRepository as _, HistoryRepository as _, NewDomainChange};

pub use charge::RenewalCharges;
pub use ds::DsError;

/// The sealed column with the contacts of domains.
pub(crate) const CONTACT: SealedColumn =
    SealedColumn { table: "domains.contacts", column: "sealed", row_key: &[("domain_id", "uuid")] };

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[CONTACT];

/// The interval between reads of a domain at the registrar, and the maximum random addition to it, in seconds.
const SYNC_SECONDS: i64 = 24 * 3600;
const SYNC_JITTER_SECONDS: i64 = 2 * 3600;

/// The minimum increase of the expiry per renewed year, in seconds. Registries treat leap days differently.
const MIN_YEAR_SECONDS: i64 = 300 * 24 * 3600;

/// The maximum time for which the registrar may continue a request whose caller has stopped waiting, in seconds.
const MAX_IN_PROGRESS_SECONDS: i64 = 120;

/// The minimum time for a registration or a renewal. The registrar usually needs one or two seconds.
const MIN_ORDER_TIME: Duration = Duration::from_secs(3);

type Result<T> = std::result::Result<T, DomainError>;

/// The configuration of the domain service.
#[derive(Debug, Clone)]
pub struct DomainsConfig {
    /// How long a request waits for a saga or the registrar. It is shorter than the ten seconds of a request, which
    /// leaves time for the response.
    pub request_timeout: Duration,
    /// The maximum number of requests to the registrar that an organization can cause in any hour. Half of them can be
    /// made in one burst.
    pub registrar_requests_per_org: u32,
}

impl Default for DomainsConfig {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(8),
            registrar_requests_per_org: AbuseLimits::default().registrar_requests_per_org,
        }
    }
}

/// A domain, and whether the request created it (status 201) or found it (status 200).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub domain: Domain,
    pub is_new: bool,
}

/// The domain service. Cheap to clone.
#[derive(Clone)]
pub struct Domains {
    store: Store,
    config: Arc<DomainsConfig>,
    ports: Ports,
}

impl Domains {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, config: DomainsConfig, ports: Ports) -> Self {
        sync::create_counter();
        Self { store, config: Arc::new(config), ports }
    }

    fn registrar(&self) -> Result<&dyn Registrar> {
        self.ports.registrar.as_deref().ok_or(DomainError::RegistrarNotConfigured)
    }

    /// Returns whether an earlier attempt of a step may still be in progress at the registrar. A refusal of a
    /// registration can then be about that attempt: its key is in use, or it has already taken the name.
    fn may_be_in_progress(&self, attempt: &Attempt) -> bool {
        attempt.unanswered_at.is_some() && !self.store.has_elapsed(attempt.unanswered_at, MAX_IN_PROGRESS_SECONDS)
    }

    /// Takes requests from the organization's share of the registrar's rate limit. Each use case takes all its requests
    /// before its first call, so that it never stops halfway.
    async fn take_requests(&self, org: OrgId, requests: u32) -> Result<()> {
        let wait = self.try_take_requests(org, requests).await?;
        let Some(wait) = wait else { return Ok(()) };
        let retry_after = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
        Err(DomainError::TooManyRequests { retry_after })
    }

    /// Returns `None` if it took the requests, and otherwise the time until they are available.
    async fn try_take_requests(&self, org: OrgId, requests: u32) -> store::Result<Option<Duration>> {
        let quota = Quota::at_most_per_hour(self.config.registrar_requests_per_org);
        self.store.permits_take(&format!("registrar-org {org}"), quota, requests).await
    }

    /// Returns the time at which a request stops waiting for a saga or the registrar.
    fn request_end(&self) -> Instant {
        Instant::now() + self.config.request_timeout
    }

    fn now(&self) -> Time {
        self.store.clock_rng().now()
    }

    /// Returns the time of the next read at the registrar.
    fn next_sync_at(&self, now: Time) -> Time {
        let fraction = i64::from(u16::from_be_bytes(self.store.clock_rng().bytes()));
        now.plus_seconds(SYNC_SECONDS + SYNC_JITTER_SECONDS * fraction / i64::from(u16::MAX))
    }

    /// Finds a domain by its name, in any spelling.
    async fn find(&self, org: OrgId, name: &str) -> Result<DomainRecord> {
        let name = parse_path(name)?;
        let found = self.store.connection().await?.domain_find(org, name.as_str()).await?;
        found.ok_or(DomainError::NotFound)
    }

    /// Finds a domain that the registrar manages.
    async fn find_managed(&self, org: OrgId, name: &str) -> Result<DomainRecord> {
        let domain = self.find(org, name).await?;
        if domain.state.is_managed() { Ok(domain) } else { Err(DomainError::NotManaged) }
    }

    /// Locks a domain that this request has already read.
    async fn lock_domain(&self, tx: &mut Connection, domain: &DomainRecord) -> Result<DomainRecord> {
        tx.domain_lock_by_id(domain.id).await?.ok_or(DomainError::NotFound)
    }

    /// Stores a changed domain, whose row is locked.
    async fn update_locked(&self, tx: &mut Connection, domain: &DomainRecord) -> store::Result<()> {
        if tx.domain_update(domain).await? {
            Ok(())
        } else {
            Err(Error::inconsistent("the domain changed under its lock"))
        }
    }

    /// Records an event in the history of a domain.
    async fn append_history(
        &self,
        tx: &mut Connection,
        domain: DomainId,
        event: &Event,
        actor: Option<UserId>,
    ) -> store::Result<()> {
        let now = self.now();
        let id = self.store.clock_rng().id_at(now);
        tx.history_append(&NewDomainChange { id, domain, event: event.name, actor, data: &event.data, created_at: now })
            .await
    }

    fn view(&self, record: DomainRecord) -> Domain {
        let now = self.now();
        let is_known = !matches!(record.state, DomainState::External | DomainState::Registering);
        Domain {
            id: record.id,
            name: record.name,
            state: record.state,
            expires_at: record.expires_at.filter(|_| is_known),
            locked: record.locked.filter(|_| is_known),
            nameservers: record.nameservers,
            auto_renew: record.auto_renew,
            transferable_at: record.transferable_at.filter(|at| is_known && *at > now),
            registered_at: record.registered_at.filter(|_| is_known),
            created_at: record.created_at,
        }
    }
}

/// The unique index of the names in use.
const LIVE_NAME: &str = "domains_name_live_key";

/// Converts the error of a write that violates the unique index: another organization has the name.
fn or_taken(error: Error, name: &str) -> DomainError {
    if error.violates(LIVE_NAME) { DomainError::Taken(name.to_owned()) } else { error.into() }
}

/// Parses the name in a path. An invalid name is "not found", because no domain can have it.
fn parse_path(name: &str) -> Result<DomainName> {
    DomainName::parse(name).map_err(|_| DomainError::NotFound)
}

/// Calls the registrar until `until`. Use it for all calls of a request together, because each may take almost as long.
async fn call_registrar<T>(
    until: Instant,
    calls: impl Future<Output = std::result::Result<T, RegistrarError>>,
) -> Result<T> {
    let result = tokio::time::timeout_at(until, calls).await;
    let result = result.unwrap_or_else(|_| Err(RegistrarError::Unavailable("no response in time".to_owned())));
    result.map_err(|error| registrar_failed(&error))
}

/// Logs a failure of the registrar. Its text contains only a status.
fn registrar_failed(error: &RegistrarError) -> DomainError {
    tracing::warn!(%error, "the registrar failed");
    DomainError::RegistrarFailed
}
