//! The ports that other contexts implement.

use std::time::Duration;

use kernel::{
    AccessMode, Digest, NamedProject, NotificationId, OrgId, Plan, ProjectId, RepositoryId, Role, Time, TokenHash,
    UserId, ZoneId,
};
use store::Connection;

use crate::model::Hsts;

/// Access to organizations.
#[async_trait::async_trait]
pub trait Organizations: Send + Sync {
    /// Locks the organization's row until the transaction ends and returns its plan, or `None` for an unknown
    /// organization.
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>>;

    /// Returns the user's role in the organization, or `None` if the user is not a member.
    async fn role(&self, connection: &mut Connection, org: OrgId, user: UserId) -> store::Result<Option<Role>>;

    /// Raises a notification in the caller's transaction. Returns `None` when the same notification was raised
    /// recently.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<Option<NotificationId>>;
}

/// The notifications that projects raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The plan's limit prevented the creation of a project.
    ProjectLimit { limit: u32 },
    /// An active hostname failed its ownership check. It is served until `until`.
    HostnameUnproved { project: NamedProject, hostname: String, until: Time },
    /// Another project took over a hostname of the project.
    HostnameTakenOver { project: NamedProject, hostname: String },
    /// The project took over a hostname of another project.
    HostnameAcquired { project: NamedProject, hostname: String },
}

/// The desired state of a project on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveState {
    /// The id of the organization, or of its creator while it has the free plan. All projects of an owner have one share
    /// of the memory, connections and permits of a node.
    pub owner: String,
    /// The active hostnames.
    pub hostnames: Vec<String>,
    /// `Strict-Transport-Security` of the active hostnames that have it.
    pub hsts: Vec<(String, Hsts)>,
    /// The bundle's digest.
    pub bundle: Digest,
    /// The bundle's size, in bytes.
    pub size_bytes: i64,
    /// The deployment's version.
    pub version: i32,
    /// The access policy.
    pub access: LiveAccess,
}

/// The access policy of a project, as the node enforces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAccess {
    pub mode: AccessMode,
    /// The shared password's hash, as a PHC string (Argon2id).
    pub password: Option<String>,
    /// The hash of the bypass key.
    pub bypass: Option<TokenHash>,
    /// Increases with every change of the mode or the password, which invalidates the access cookies issued before. A
    /// change of the bypass key does not increase it.
    pub version: i32,
}

/// The desired state of projects on their nodes.
#[async_trait::async_trait]
pub trait Placements: Send + Sync {
    /// Locks the certificate of a hostname that moves between these projects, with the zones of its challenge, and then
    /// their placements and their nodes, each in the order of their ids. A transaction that writes the desired state of
    /// several projects calls it before, and after it has locked the other zones that it needs.
    async fn lock(&self, tx: &mut Connection, hostname: &str, projects: &[ProjectId]) -> store::Result<()>;

    /// Writes the desired state that this context owns, in the caller's transaction. Locks the node, so the transaction
    /// has already locked the zones of its hostnames.
    async fn set_desired(&self, tx: &mut Connection, project: ProjectId, live: LiveState) -> store::Result<()>;

    /// Removes the desired state of a project, and the secrets that other contexts have about it, in the transaction
    /// that deletes the project.
    async fn remove(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;

    /// Deletes a batch of the rows that other contexts have about a project that is being purged, if their number has no
    /// limit. Returns whether more can be left.
    async fn purge_batch(&self, tx: &mut Connection, project: ProjectId) -> store::Result<bool>;

    /// Deletes all other data that other contexts have about a project, in the transaction that purges it.
    async fn purge(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;
}

/// A push to a git repository that is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Push {
    pub repository: RepositoryId,
    /// The number of the ref update.
    pub number: i64,
}

/// The pushes that are deployed.
#[async_trait::async_trait]
pub trait Pushes: Send + Sync {
    /// Returns whether a push may be deployed: it was not deployed, no other push comes first, and the repository's
    /// pushes are still deployed. Takes no lock.
    async fn is_next(&self, tx: &mut Connection, push: Push) -> store::Result<bool>;

    /// Records the version of a push, in the transaction that creates the version. Returns false if the push may not be
    /// deployed.
    async fn complete(&self, tx: &mut Connection, push: Push, version: i32) -> store::Result<bool>;
}

/// The result of publishing a hostname's DNS records in a hosted zone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishedRecords {
    /// Whether records were added or deleted.
    pub changed: bool,
    /// A message for users when the records could not be published.
    pub problem: Option<String>,
}

/// A hosted zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostedZone {
    pub id: ZoneId,
    pub name: String,
}

/// The hosted zones.
#[async_trait::async_trait]
pub trait Zones: Send + Sync {
    /// Returns the organization's zone that contains the name.
    async fn zone_of(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<HostedZone>>;

    /// Publishes the records of an active hostname in the organization's zone, in the caller's transaction. Does
    /// nothing for a name outside the organization's zones.
    async fn link(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<PublishedRecords>;

    /// Removes the records that [`Self::link`] published for these names, in the caller's transaction.
    async fn unlink(&self, tx: &mut Connection, org: OrgId, names: &[&str]) -> store::Result<()>;
}

/// A failed DNS lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupFailure {
    /// A message for users.
    pub message: String,
    /// Whether the failure is transient, so that it proves nothing. A name that does not exist is a permanent failure.
    pub transient: bool,
}

/// Lookups in the public DNS.
#[async_trait::async_trait]
pub trait Resolver: Send + Sync {
    /// Returns the texts of the name's TXT records.
    ///
    /// # Errors
    /// Returns an error when the lookup fails or the name does not exist.
    async fn txt(&self, name: &str, timeout: Duration) -> Result<Vec<String>, LookupFailure>;

    /// Returns the target of the name's CNAME record, in lowercase and without the final dot.
    ///
    /// # Errors
    /// Returns an error when the lookup fails or the name does not exist.
    async fn cname(&self, name: &str, timeout: Duration) -> Result<Option<String>, LookupFailure>;
}
