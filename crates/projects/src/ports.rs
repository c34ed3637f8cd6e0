//! What this context asks of others.

use std::time::Duration;

use kernel::{AccessMode, Digest, NotificationId, OrgId, Plan, ProjectId, Role, Time, TokenHash, UserId};
use store::Connection;

/// Organizations, as far as projects depend on them.
#[async_trait::async_trait]
pub trait Organizations: Send + Sync {
    /// Locks the organization's row until the transaction ends and tells its plan; none when there is no such
    /// organization.
    ///
    /// # Errors
    /// When the database is away.
    async fn lock(&self, tx: &mut Connection, org: OrgId) -> store::Result<Option<Plan>>;

    /// The user's role in the organization; none for an outsider.
    ///
    /// # Errors
    /// When the database is away.
    async fn role(&self, connection: &mut Connection, org: OrgId, user: UserId) -> store::Result<Option<Role>>;

    /// Raises a notification in the transaction of its cause. Gives nothing when the same was raised so shortly before
    /// that it is not raised again.
    ///
    /// # Errors
    /// When the database is away.
    async fn raise(&self, tx: &mut Connection, org: OrgId, notice: Notice) -> store::Result<Option<NotificationId>>;
}

/// The notifications that projects raise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The plan's limit has stopped a project from being created.
    ProjectLimit { limit: u32 },
    /// An active hostname has failed its ownership check; it is served until this time.
    HostnameUnproved { project: String, hostname: String, until: Time },
}

/// What is live of a project, for whoever serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// The active hostnames.
    pub hostnames: Vec<String>,
    /// The bundle.
    pub bundle: Digest,
    /// The bundle's size, in bytes.
    pub size_bytes: i64,
    /// The deployment's version.
    pub version: i32,
    /// Who may see it.
    pub access: LiveAccess,
}

/// Who may see a project, for whoever serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveAccess {
    pub mode: AccessMode,
    /// The shared password's hash, as a PHC string (Argon2id).
    pub password: Option<String>,
    /// Of the key that passes by the policy.
    pub bypass: Option<TokenHash>,
    /// Raised by every change: what was let in before it is let in no longer.
    pub version: i32,
}

/// The nodes that serve projects.
#[async_trait::async_trait]
pub trait Placements: Send + Sync {
    /// Writes the part of the desired state that this context owns, in the transaction that decides it.
    ///
    /// # Errors
    /// When the database is away.
    async fn converge(&self, tx: &mut Connection, project: ProjectId, live: Live) -> store::Result<()>;

    /// Ends the desired state of a project, in the transaction that deletes it.
    ///
    /// # Errors
    /// When the database is away.
    async fn remove(&self, tx: &mut Connection, project: ProjectId) -> store::Result<()>;
}

/// What became of the records that lead visitors of a hostname to the platform, where its zone is hosted here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Linked {
    /// Whether they were not there before.
    pub changed: bool,
    /// Why they are not there, in words for people.
    pub problem: Option<String>,
}

/// Zones that are hosted here.
#[async_trait::async_trait]
pub trait Zones: Send + Sync {
    /// The organization's zone that the name lies in.
    ///
    /// # Errors
    /// When the database is away.
    async fn zone_of(&self, connection: &mut Connection, org: OrgId, name: &str) -> store::Result<Option<String>>;

    /// Publishes the records of a served hostname in the organization's zone, in the transaction that decides it. A name
    /// that lies in none is no problem.
    ///
    /// # Errors
    /// When the database is away.
    async fn link(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<Linked>;

    /// Takes them away, in the transaction that decides it.
    ///
    /// # Errors
    /// When the database is away.
    async fn unlink(&self, tx: &mut Connection, org: OrgId, name: &str) -> store::Result<()>;
}

/// Why a lookup gave nothing, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupFailure {
    pub message: String,
    /// Whether the same lookup may succeed later: nothing follows from it. That a name does not exist is an answer.
    pub temporary: bool,
}

/// Looks records up in the public DNS.
#[async_trait::async_trait]
pub trait Resolver: Send + Sync {
    /// The texts of the name's TXT records; none when there are none.
    ///
    /// # Errors
    /// When that cannot be said, or the name does not exist.
    async fn txt(&self, name: &str, patience: Duration) -> Result<Vec<String>, LookupFailure>;

    /// What the name is a CNAME of, lowercase and without the final dot.
    ///
    /// # Errors
    /// When that cannot be said, or the name does not exist.
    async fn cname(&self, name: &str, patience: Duration) -> Result<Option<String>, LookupFailure>;
}
