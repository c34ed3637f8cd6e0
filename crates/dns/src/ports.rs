//! The ports that the server implements.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kernel::{OrgId, Plan};
use store::Connection;

/// The implementations of the ports.
#[derive(Debug)]
pub struct Ports {
    pub organizations: Arc<dyn Organizations>,
    pub resolver: Arc<dyn Resolver>,
    pub registrations: Arc<dyn Registrations>,
    pub hostnames: Arc<dyn Hostnames>,
}

/// The domains that are registered through this installation.
#[async_trait::async_trait]
pub trait Registrations: Debug + Send + Sync {
    /// Returns whether the organization registered the domain of this zone here, so that this installation sets its DS
    /// records at the registry.
    async fn is_registered(&self, connection: &mut Connection, org: OrgId, zone: &str) -> store::Result<bool>;

    /// Releases the organization's imported domain of this zone, in the transaction that deletes the zone.
    async fn release_imported(&self, tx: &mut Connection, org: OrgId, zone: &str) -> store::Result<()>;
}

/// The hostnames of projects.
#[async_trait::async_trait]
pub trait Hostnames: Debug + Send + Sync {
    /// Is called in the transaction that creates a zone. After the commit, the organization's hostnames at and below the
    /// name are verified, which publishes the records of active hostnames, or stores the reason why it cannot. The
    /// transaction locks the catalog, so this method must not wait for locks.
    async fn zone_created(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()>;
}

/// Access to organizations.
#[async_trait::async_trait]
pub trait Organizations: Debug + Send + Sync {
    /// Returns the organization's plan, or `None` for an unknown organization.
    async fn plan(&self, connection: &mut Connection, org: OrgId) -> store::Result<Option<Plan>>;

    /// Raises a notification in the caller's transaction.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<()>;
}

/// The notifications that this context raises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Another organization took over these zones (`zone.taken_over`), at least one. `record` is the name of the TXT
    /// record that proves the ownership.
    ZonesTakenOver { zones: Vec<String>, record: String },
}

/// The targets of a name's NS records, lowercase and without the final dot. Empty if the name exists but has no NS
/// records.
pub type NsRecords = Result<Vec<String>, LookupFailure>;

/// The texts of a name's TXT records. Empty if the name exists but has no TXT records.
pub type TxtRecords = Result<Vec<String>, LookupFailure>;

/// A failed DNS lookup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupFailure {
    /// The name does not exist.
    #[error("the name does not exist")]
    NoSuchName,
    /// The resolver responds, but it failed to resolve the name (SERVFAIL). This is the response for a delegation to
    /// nameservers that do not serve the zone.
    #[error("the name server failed to resolve the name")]
    ServerFailure,
    /// There is no usable response. The message is for users.
    #[error("{0}")]
    Unavailable(String),
}

/// Lookups in the public DNS.
#[async_trait::async_trait]
pub trait Resolver: Debug + Send + Sync {
    /// Looks up the NS records of all names concurrently, and returns them in the order of the names. Does not follow
    /// aliases. The timeout applies to all lookups together.
    async fn ns(&self, names: &[String], timeout: Duration) -> Vec<NsRecords>;

    /// Looks up the TXT records of all names, like [`Self::ns`]. Follows aliases.
    async fn txt(&self, names: &[String], timeout: Duration) -> Vec<TxtRecords>;
}
