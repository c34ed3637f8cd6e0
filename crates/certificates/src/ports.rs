//! The ports of this context: the certificate authorities, the public DNS, the hosted zones, the desired state of
//! nodes, projects and organizations.

use std::sync::Arc;

use async_trait::async_trait;
use kernel::{NamedProject, OrgId, ProjectId, Secret, Time};
use store::Connection;

use crate::caa::CaaRecord;
use crate::model::{CertificateReference, Challenge};

/// A failed call to a certificate authority. Messages are for users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// The authority does not respond, or reports an internal error. A retry may succeed.
    #[error("the certificate authority is unavailable: {0}")]
    Unavailable(String),
    /// The authority limits the rate of this request. For an order, it may accept the orders of other names.
    #[error("the certificate authority limits the rate of orders: {message}")]
    RateLimited {
        message: String,
        /// The number of seconds after which the authority accepts the request, if it states one.
        retry_after: Option<i64>,
    },
    /// The authority accepts no requests of this installation at the moment.
    #[error("the certificate authority is overloaded: {message}")]
    Overloaded {
        message: String,
        /// The number of seconds after which the authority accepts requests, if it states one.
        retry_after: Option<i64>,
    },
    /// The authority does not know the account, or has deactivated or revoked it.
    #[error("the certificate authority rejected the account: {0}")]
    Account(String),
    /// The authority does not know the order.
    #[error("the certificate authority does not know the order")]
    NoSuchOrder,
    /// The authority refuses to issue. The same request will fail again.
    #[error("the certificate authority refused: {0}")]
    Refused(String),
}

/// The status of an order (RFC 8555 section 7.1.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStatus {
    /// The authority waits for the challenge.
    Pending,
    /// The authority waits for the request to issue.
    Ready,
    /// The authority issues the certificate.
    Processing,
    /// The certificate is issued.
    Valid,
    /// The order failed.
    Invalid,
}

/// A challenge that an authority offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedChallenge {
    pub challenge: Challenge,
    pub token: String,
    /// The TXT record of DNS-01, or the key authorization of HTTP-01.
    pub response: String,
    /// Whether the authority has not been asked to validate the challenge yet.
    pub is_pending: bool,
}

/// An order at an authority, for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityOrder {
    pub url: String,
    pub status: OrderStatus,
    /// The challenges, of which one must be completed. Empty if the authority requires none.
    pub challenges: Vec<OfferedChallenge>,
    /// The reason why the order failed.
    pub error: Option<String>,
    /// The number of seconds after which the authority expects the next request for the order, if it states one.
    pub retry_after: Option<i64>,
}

/// The time range in which an authority suggests to renew a certificate (RFC 9773 section 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenewalWindow {
    pub start: Time,
    pub end: Time,
}

/// A certificate authority that implements ACME. An implementation limits the duration of each call.
#[async_trait]
pub trait Authority: Send + Sync {
    /// Returns the URL of the directory, which identifies the authority.
    fn directory(&self) -> &str;

    /// Creates an account, and returns its credentials.
    async fn create_account(&self) -> Result<Secret, AuthorityError>;

    /// Starts a session with these credentials.
    async fn open(&self, account: &Secret) -> Result<Box<dyn AuthoritySession>, AuthorityError>;

    /// Returns the time range in which the authority suggests to renew the certificate with this identifier. Returns
    /// `None` if the authority does not offer renewal information.
    async fn renewal_window(&self, renewal_id: &str) -> Result<Option<RenewalWindow>, AuthorityError>;
}

/// A session of an account.
#[async_trait]
pub trait AuthoritySession: Send + Sync {
    /// Returns the URL of the account, which CAA records can name (RFC 8657 section 3).
    fn account_url(&self) -> &str;

    /// Returns the names with which CAA records allow this authority (RFC 8555 section 7.1.1, `caaIdentities`). Empty
    /// if the authority does not state them.
    fn caa_identities(&self) -> &[String];

    /// Creates an order. `replaces` is the identifier of the certificate that it renews (RFC 9773 section 5). If the
    /// authority refuses only the replacement, creates the order without it.
    async fn create_order(&self, name: &str, replaces: Option<&str>) -> Result<AuthorityOrder, AuthorityError>;

    /// Returns an order.
    async fn order(&self, url: &str) -> Result<AuthorityOrder, AuthorityError>;

    /// Asks the authority to validate the challenge of an order.
    async fn validate(&self, url: &str, challenge: Challenge) -> Result<(), AuthorityError>;

    /// Asks the authority to issue, with this certificate signing request (DER).
    async fn finalize(&self, url: &str, request: &[u8]) -> Result<(), AuthorityError>;

    /// Downloads the certificate of a valid order: a chain as PEM.
    async fn certificate(&self, url: &str) -> Result<String, AuthorityError>;
}

/// Lookups in the public DNS.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the CAA records of a name. Empty if the name has none or does not exist.
    ///
    /// # Errors
    /// Returns a message if the lookup failed.
    async fn caa(&self, name: &str) -> Result<Vec<CaaRecord>, String>;

    /// Returns whether a name, or the target of its alias, has an address.
    ///
    /// # Errors
    /// Returns a message if the lookup failed.
    async fn has_address(&self, name: &str) -> Result<bool, String>;
}

/// The result of publishing a TXT record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishedRecord {
    /// The zone contains the record.
    Published { zone: String },
    /// The record cannot be published. The message is for users.
    Refused(String),
}

/// The number of nameservers by their answer to a request for a TXT record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Propagation {
    /// The nameservers that serve the record.
    pub serving: usize,
    /// The nameservers that do not serve the record.
    pub missing: usize,
    /// The nameservers that did not answer.
    pub unreachable: usize,
}

/// The hosted zones.
#[async_trait]
pub trait Zones: Send + Sync {
    /// Returns the organization's zone that contains the name.
    async fn find(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<String>>;

    /// Returns whether the public DNS delegates the zone only to nameservers of this platform.
    async fn is_delegated(&self, zone: &str) -> bool;

    /// Locks the zones of these organizations that contain these names, in a fixed order.
    async fn lock(&self, tx: &mut Connection, names: &[(OrgId, String)]) -> store::Result<()>;

    /// Publishes a TXT record in the organization's zone, in the caller's transaction. Keeps the other records of this
    /// context at the same name.
    async fn publish(&self, tx: &mut Connection, org: OrgId, name: &str, text: &str) -> store::Result<PublishedRecord>;

    /// Deletes the record that [`Self::publish`] wrote, in the caller's transaction. A no-op without such a record.
    async fn withdraw(&self, tx: &mut Connection, org: OrgId, name: &str, text: &str) -> store::Result<()>;

    /// Asks the nameservers of this platform for the TXT record.
    async fn propagation(&self, name: &str, text: &str) -> Propagation;
}

/// The desired state of nodes.
#[async_trait]
pub trait DesiredPart: Send + Sync {
    /// Locks the placements of these projects, in the order of their ids. A transaction that publishes the certificates
    /// of several projects calls it first.
    async fn lock(&self, tx: &mut Connection, projects: &[ProjectId]) -> store::Result<()>;

    /// Writes the certificates of a project to the desired state of its node, in the caller's transaction. Without
    /// certificates, removes the part.
    async fn publish(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        certificates: &[CertificateReference],
    ) -> store::Result<()>;
}

/// The projects.
#[async_trait]
pub trait Projects: Send + Sync {
    /// Locks the project's row until the transaction ends. A no-op for a deleted project. The transactions that change
    /// the hostnames of a project hold the same lock.
    async fn lock(&self, tx: &mut Connection, org: OrgId, project: ProjectId) -> store::Result<()>;
}

/// The notifications of this context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The certificate of a hostname expires soon, and its renewal failed.
    RenewalFailed { project: NamedProject, hostname: String, reason: String, expires_at: Time },
}

/// Access to organizations.
#[async_trait]
pub trait Organizations: Send + Sync {
    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The implementations of the ports.
#[derive(Clone)]
pub struct Ports {
    /// The authorities, in the order of preference. Without one, no certificate is issued.
    pub authorities: Vec<Arc<dyn Authority>>,
    pub resolver: Arc<dyn Resolver>,
    pub zones: Arc<dyn Zones>,
    pub desired: Arc<dyn DesiredPart>,
    pub projects: Arc<dyn Projects>,
    pub organizations: Arc<dyn Organizations>,
}
