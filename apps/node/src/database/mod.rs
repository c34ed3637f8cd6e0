//! Databases of projects: `env.db`, and logins from outside (spec/runtime.md, docs/databases.md).
//!
//! The node owns a whole Postgres cluster. Each project has a database in it, with an owner that cannot log in and the
//! logins that act as this owner. `manager` passes the desired state to one task per project, and sweeps all databases.
//! `project` and `reconcile` change one database into its desired state; `step` executes the phases of an operation. A
//! database that was replaced or removed is renamed and kept for some days: it is a tombstone. All state is in the
//! cluster itself: in the catalogs, and in the tables of `svc_node`.

pub mod admin;
pub mod announce;
pub mod autovacuum;
pub mod backup;
pub mod config;
pub mod connections;
mod converge;
mod create;
mod credential;
pub mod exclusive;
pub mod load;
pub mod logins;
mod manager;
mod memberships;
mod metrics;
pub mod names;
pub mod notify_queue;
mod plan;
mod project;
mod reconcile;
pub mod registry;
mod restrict;
mod revoked_roles;
pub mod server;
pub mod sessions;
mod snapshot;
pub mod status;
mod step;
mod swap;
mod sweep;
mod tables;
mod template;
mod time;
mod usage;
mod watchdog;

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use anyhow::Context as _;
use protocol::Database;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;

use self::admin::Admin;
use self::backup::{BackupMetrics, Backups};
use self::config::DatabaseConfig;
use self::exclusive::Ownership;
use self::manager::Manager;
use self::server::Address;
use self::status::Statuses;
use crate::clock::ReferenceClock;
use crate::observe::Observer;

pub use self::metrics::DatabaseMetrics;
pub use self::registry::Registry;
pub use self::server::Server;

/// The largest number of databases that are changed at the same time.
const MAX_CONCURRENT_CHANGES: usize = 4;

/// The databases of the node.
pub struct Databases {
    registry: Registry,
    ownership: Option<watch::Receiver<Ownership>>,
    changes: mpsc::UnboundedSender<DatabaseChanges>,
}

/// Changes of the desired databases.
#[derive(Debug, Clone, Default)]
pub struct DatabaseChanges {
    /// Whether this is a full state, which lists all databases.
    pub is_full: bool,
    /// The database parts by project; `None` if a part is no longer desired.
    pub changed: Vec<(String, Option<Database>)>,
    /// The projects whose part is unavailable. Their databases stay unchanged.
    pub kept: BTreeSet<String>,
    /// The projects with the part `deletedBackups`. They are applied with the next full state.
    pub deleted_backups: BTreeSet<String>,
    /// Whether the control plane was restored from a backup. A full state follows.
    pub is_restored: bool,
    /// Whether the control plane accepts the credential of the node; `None` if this did not change. While the control
    /// plane rejects the credential, all logins are closed.
    pub is_authorized: Option<bool>,
}

/// The desired database of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DesiredDatabase {
    /// The part that the previous process saved. That process may have applied a later part without saving it. Until
    /// the control plane sends the part again, the node therefore uses the saved part only to restrict logins.
    Saved(Arc<Database>),
    Present(Arc<Database>),
    /// The part was withdrawn: all logins are refused.
    Withdrawn,
    /// A full state did not list the part: the logins are closed, and the database is removed later.
    Removed,
}

impl DesiredDatabase {
    const fn part(&self) -> Option<&Arc<Database>> {
        match self {
            Self::Saved(database) | Self::Present(database) => Some(database),
            Self::Withdrawn | Self::Removed => None,
        }
    }
}

/// The state that all tasks share.
struct Shared {
    admin: Admin,
    address: Arc<Address>,
    registry: Registry,
    statuses: Statuses,
    backups: Arc<Backups>,
    metrics: DatabaseMetrics,
    /// The time of the control plane.
    clock: ReferenceClock,
    /// Whether the control plane accepts the credential of the node.
    is_authorized: watch::Sender<bool>,
    permits: Semaphore,
    /// Permits for databases whose last change failed, so that these delay only each other.
    retry_permits: Semaphore,
}

impl Databases {
    /// Starts the tasks, with the saved desired state. Postgres need not be reachable. Must be called within a tokio
    /// runtime.
    ///
    /// # Errors
    /// Returns an error if the store of the backups cannot be opened.
    pub fn open(
        config: &DatabaseConfig,
        saved: Vec<(String, Database)>,
        observer: Observer,
        clock: ReferenceClock,
        (metrics, backup_metrics): (DatabaseMetrics, BackupMetrics),
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let (admin, registry) = (Admin::exclusive(config.server.clone()), Registry::default());
        let ownership = admin.ownership();
        let statuses = Statuses::new(observer.clone());
        let backups = Backups::open(
            config.backups.as_ref(),
            &config.programs,
            admin.clone(),
            registry.clone(),
            statuses.clone(),
            observer,
            clock.clone(),
            backup_metrics,
            tasks,
        );
        let shared = Arc::new(Shared {
            admin,
            address: Arc::clone(&config.server.address),
            registry: registry.clone(),
            statuses,
            backups: backups.context("cannot open the backups")?,
            metrics,
            clock,
            is_authorized: watch::Sender::new(true),
            permits: Semaphore::new(MAX_CONCURRENT_CHANGES),
            retry_permits: Semaphore::new(MAX_CONCURRENT_CHANGES),
        });
        let (changes, received) = mpsc::unbounded_channel();
        let admin = shared.admin.clone();
        tasks.spawn(async move {
            admin.acquire().await;
            pending().await
        });
        tasks.spawn(watchdog::run(shared.admin.clone(), shared.metrics.clone()));
        tasks.spawn(async move {
            shared.admin.acquired().await;
            Manager::new(shared, saved).run(received).await;
        });
        Ok(Self { registry, changes, ownership })
    }

    /// Returns the registry of the databases, for `env.db`.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// Returns a channel that shows whether this node manages its Postgres; `None` if other nodes may use it at the
    /// same time.
    #[must_use]
    pub fn ownership(&self) -> Option<watch::Receiver<Ownership>> {
        self.ownership.clone()
    }

    /// Returns the sender of changes of the desired state.
    #[must_use]
    pub fn changes(&self) -> mpsc::UnboundedSender<DatabaseChanges> {
        self.changes.clone()
    }
}
