//! The use cases of repositories. Each submodule is one topic.

mod browse;
mod deploy;
mod node;
mod read_permits;
mod repo;
mod storage;

use std::sync::Arc;

use kernel::{AbuseLimits, Limits, OrgId, ProjectId};
use store::{SealedColumn, Store};

use self::read_permits::ReadPermits;
use crate::error::GitError;
use crate::ports::Ports;

pub use node::NodeAddress;
pub use read_permits::{ReadPermit, RepoRead};
pub use repo::ProjectPath;
pub use storage::RepositoryStorage;

/// The sealed columns of this context.
pub const SEALED_COLUMNS: &[SealedColumn] = &[node::SECRET];

type Result<T> = std::result::Result<T, GitError>;

/// The project of a request, with its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub org: OrgId,
    pub project: ProjectId,
}

/// The addresses of the git node that users see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// The base URL of repositories over HTTPS, without a trailing slash.
    pub git_url: Option<String>,
    /// The host of repositories over SSH, with the port if it is not 22.
    pub ssh_host: Option<String>,
}

/// The repository service. Cheap to clone.
#[derive(Clone)]
pub struct Repositories {
    store: Store,
    limits: Limits,
    abuse_limits: AbuseLimits,
    site: Site,
    ports: Ports,
    read_permits: Arc<ReadPermits>,
}

impl Repositories {
    /// Creates the service, with the default limits against abuse.
    #[must_use]
    pub fn new(store: Store, limits: Limits, site: Site, ports: Ports) -> Self {
        Self { store, limits, abuse_limits: AbuseLimits::default(), site, ports, read_permits: Arc::default() }
    }

    /// Replaces the limits against abuse.
    #[must_use]
    pub fn with_abuse_limits(self, abuse_limits: AbuseLimits) -> Self {
        Self { abuse_limits, ..self }
    }
}
