//! Backups of databases: generations on a schedule and for operations, exports, and restores (docs/backups.md).
//!
//! A dump has a row in the node's own database before its object is written. The row becomes `stored` only after the
//! object was read back and verified, so every object either has a stored row or is deleted. Stored rows are reported
//! until the control plane has accepted them.

mod archives;
pub mod config;
mod contents;
mod desired;
mod dump;
mod error;
mod exports;
mod failed;
mod fingerprint;
mod grid;
mod growth;
mod inventory;
mod kind;
pub mod launch;
mod long;
mod metrics;
mod program;
mod project;
mod records;
mod repeated;
mod reports;
mod restore;
mod retention;
mod schedule;
mod slots;
mod spool;
pub mod tables;
mod upkeep;
mod verify;
mod version;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use protocol::{Database, GenerationKind, GenerationRef, GenerationReport};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use self::archives::{Archives, new_key};
use self::config::BackupConfig;
use self::desired::DesiredParts;
use self::error::Result;
use self::failed::FailedObjects;
use self::kind::Kind;
use self::long::LongDumps;
use self::records::{Dump, NewDump};
use self::repeated::RepeatedErrors;
use self::slots::Slots;
use super::admin::Admin;
use super::config::Programs;
use super::load::LoadTarget;
use super::names;
use super::registry::Registry;
use super::server::Credentials;
use super::status::Statuses;
use crate::clock::{self, ReferenceClock};
use crate::in_use::InUse;
use crate::observe::Observer;

pub use self::desired::FullState;
pub use self::error::{BackupError, failure_text, report_text};
pub use self::metrics::BackupMetrics;

/// The backups of the node's databases.
pub struct Backups {
    /// `None` if the node has no store for them.
    service: Option<Arc<Service>>,
}

struct Service {
    archives: Archives,
    programs: Programs,
    interval: Duration,
    spool: PathBuf,
    admin: Admin,
    registry: Registry,
    statuses: Statuses,
    observer: Observer,
    /// The time of the control plane.
    clock: ReferenceClock,
    metrics: BackupMetrics,
    slots: Slots,
    /// The objects that are being written or restored, which must not be deleted.
    in_use: Arc<InUse<String>>,
    failed: FailedObjects,
    /// Notified when there is a dump to report.
    stored: Notify,
    /// Whether all stored dumps must be reported again.
    reports_again: AtomicBool,
    desired: DesiredParts,
    repeated: RepeatedErrors,
    long_dumps: LongDumps,
    /// Set if `pg_restore` has another major version than the server.
    version_error: Mutex<Option<String>>,
}

impl Backups {
    /// Opens the store, and starts the background tasks. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Returns an error if the store's configuration is invalid, or the folder for restores cannot be cleared.
    #[expect(clippy::too_many_arguments, reason = "called once, with the parts of the node")]
    pub fn open(
        config: Option<&BackupConfig>,
        programs: &Programs,
        admin: Admin,
        registry: Registry,
        statuses: Statuses,
        observer: Observer,
        clock: ReferenceClock,
        metrics: BackupMetrics,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Arc<Self>> {
        let Some(config) = config else {
            tracing::error!("the databases of projects have no backups; set SVC_NODE_BACKUPS");
            metrics.store_missing.set(1);
            let refuse = move |entry, id: String| {
                let observer = observer.clone();
                async move { exports::report_failure(&observer, &entry, &id, BackupError::NotConfigured).await }
            };
            tasks.spawn(exports::run(registry, refuse));
            return Ok(Arc::new(Self { service: None }));
        };
        let spool = config.spool.clone();
        spool::clear(&spool).with_context(|| format!("failed to clear {}", spool.display()))?;
        let service = Arc::new(Service {
            archives: Archives::new(config.store.open().context("failed to open the backup store")?),
            programs: programs.clone(),
            interval: config.interval,
            spool,
            admin,
            registry,
            statuses,
            observer,
            clock,
            metrics,
            slots: Slots::new(),
            in_use: Arc::default(),
            failed: FailedObjects::new(config.interval),
            stored: Notify::new(),
            // While the node was down, the control plane may have been restored from a backup that lacks some dumps.
            reports_again: AtomicBool::new(true),
            desired: DesiredParts::default(),
            repeated: RepeatedErrors::new(programs.limits.repeated_error_time),
            long_dumps: LongDumps::default(),
            version_error: Mutex::default(),
        });
        let acquired = |task: BoxFuture<'static, ()>| {
            let admin = service.admin.clone();
            async move {
                admin.acquired().await;
                task.await;
            }
        };
        tasks.spawn(acquired(schedule::run(Arc::clone(&service)).boxed()));
        let exporter = Arc::clone(&service);
        let export = move |entry, id: String| {
            let exporter = Arc::clone(&exporter);
            async move { exporter.export(&entry, &id).await }
        };
        tasks.spawn(acquired(exports::run(service.registry.clone(), export).boxed()));
        tasks.spawn(acquired(reports::run(Arc::clone(&service)).boxed()));
        tasks.spawn(acquired(upkeep::run(Arc::clone(&service)).boxed()));
        Ok(Arc::new(Self { service: Some(service) }))
    }

    /// Returns the generation of an operation. The first call makes it; later calls return the same one, even after a
    /// restart. Returns `None` if the node stores no backups. Dropping the future stops `pg_dump` and leaves no object.
    /// `size_limit` is that of the database.
    ///
    /// # Errors
    /// Returns an error if the dump fails.
    pub async fn seal(
        &self,
        project: &str,
        (epoch, size_limit): (i64, u64),
        credentials: &Credentials,
        kind: GenerationKind,
        operation: &str,
    ) -> Result<Option<GenerationReport>> {
        let Some(service) = &self.service else { return Ok(None) };
        if let Some(sealed) = self.find_sealed(kind, operation).await? {
            return Ok(Some(sealed));
        }
        let _permit = service.slots.acquire_operation().await;
        let database = names::id(&credentials.database);
        let new = NewDump {
            project,
            database: &database,
            kind: Kind::Generation(kind),
            epoch,
            cause: Some(operation),
            days: Kind::Generation(kind).days(0),
        };
        let made = service.make_long(&new, credentials, size_limit).await;
        Ok(Some(service.repeated.record(operation, made)?.report(kind)))
    }

    /// Returns the generation that [`Self::seal`] made for an operation, if it made one.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn find_sealed(&self, kind: GenerationKind, operation: &str) -> Result<Option<GenerationReport>> {
        let Some(service) = &self.service else { return Ok(None) };
        Ok(service.find_by_cause(operation).await?.map(|dump| dump.report(kind)))
    }

    /// Restores a generation into an empty database, which may grow to `max_bytes`. After a failure, the database must
    /// be created again.
    ///
    /// # Errors
    /// Returns an error if the generation cannot be read or restored.
    pub async fn restore(&self, generation: &GenerationRef, target: &LoadTarget, max_bytes: Option<u64>) -> Result<()> {
        let service = self.service.as_ref().ok_or(BackupError::NotConfigured)?;
        let _permit = service.slots.acquire_restore().await;
        let _in_use = service.in_use.begin(generation.key.clone());
        let result = tokio::select! {
            restored = service.restore(generation, target) => restored,
            exceeded = growth::watch(target, max_bytes) => exceeded,
        };
        let result = match result {
            Ok(()) => growth::check(target, max_bytes).await,
            failed => failed,
        };
        service.metrics.count_restore(&result);
        result
    }

    /// Records the database part of a project, whether or not its database exists; `None` if the project has no desired
    /// database. The objects that the part names are not deleted.
    pub fn desire(&self, project: &str, part: Option<&Arc<Database>>) {
        if let Some(service) = &self.service {
            service.desired.set(project, part);
        }
    }

    /// Records that a full state of the control plane was applied. No object is deleted before the first full state.
    pub fn complete_desired(&self, state: FullState) {
        if let Some(service) = &self.service {
            service.desired.complete(state);
        } else if !state.deleted.is_empty() {
            tracing::warn!("cannot delete the backups of purged projects without a store; set SVC_NODE_BACKUPS");
        }
    }

    /// Reports all stored dumps again, because the control plane was restored from a backup.
    pub fn report_again(&self) {
        if let Some(service) = &self.service {
            service.reports_again.store(true, Ordering::Relaxed);
            service.stored.notify_one();
        }
    }

    /// Records that the database of a project was removed: its generations are kept for at least 30 days from now.
    ///
    /// # Errors
    /// Returns an error if Postgres fails.
    pub async fn removed(&self, project: &str) -> Result<()> {
        match &self.service {
            Some(service) => service.keep_after_removal(project).await,
            None => Ok(()),
        }
    }
}

impl Service {
    /// Makes a dump that may take this time.
    async fn make_within(&self, max: Duration, new: &NewDump<'_>, credentials: &Credentials) -> Result<Dump> {
        let began = Instant::now();
        timeout(max, self.make(new, credentials)).await.unwrap_or_else(|_| {
            let message = format!("the dump takes longer than {} minutes", max.as_secs() / 60);
            let failed = Err(BackupError::Limit(message));
            self.metrics.count_dump(new.kind, began.elapsed(), &failed);
            failed
        })
    }

    /// Dumps a database, reads the object back and records it.
    async fn make(&self, new: &NewDump<'_>, credentials: &Credentials) -> Result<Dump> {
        let began = Instant::now();
        let made = self.try_make(new, credentials).await;
        self.metrics.count_dump(new.kind, began.elapsed(), &made);
        made
    }

    async fn try_make(&self, new: &NewDump<'_>, credentials: &Credentials) -> Result<Dump> {
        let created_at = clock::now();
        let key = new_key(new.project, new.kind, created_at);
        let _in_use = self.in_use.begin(key.clone());
        self.begin(new, &key, created_at).await?;
        let object = self.dump(credentials, &key).await?;
        self.verify(&object).await?;
        self.complete(&object).await?;
        self.metrics.bytes.inc_by(object.size_bytes);
        tracing::info!(
            project = new.project,
            key,
            kind = new.kind.as_str(),
            size_bytes = object.size_bytes,
            "stored a dump of a database"
        );
        self.stored.notify_one();
        let cause = new.cause.map(str::to_owned);
        let (project, database) = (new.project.to_owned(), new.database.to_owned());
        Ok(Dump { project, database, kind: new.kind, epoch: new.epoch, cause, created_at, object })
    }
}
