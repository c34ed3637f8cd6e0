//! The long poll of the desired state.
//!
//! Level-triggered: the control plane's state is authoritative, and a long poll is only a wake-up. The node relists at
//! startup and every [`RELIST_INTERVAL`], which finds changes that a poll missed. While a relist fails, incremental
//! polls continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use daemon::Backoff;
use protocol::Platform;
use tokio::sync::mpsc::{Sender, UnboundedSender};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::cache::Cache;
use crate::client::{Core, Unauthorized};
use crate::database::DatabaseChanges;
use crate::desired::DesiredUpdate;
use crate::storage::{DeletedPrefixes, Storage};
use crate::tls::references::CertificateChanges;

/// The interval of requests for the full state.
pub const RELIST_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The delay before a failed relist is retried.
const RELIST_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The minimum interval between requests: a request for the full state returns immediately, even if it is empty.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The number of consecutive responses that reject the node's credential after which the node counts as revoked.
const MAX_REJECTIONS: u32 = 3;

/// The parts of each response other than the sites.
pub struct ControlPlaneState {
    /// The number of the last batch of reports that the control plane received.
    pub batch: watch::Sender<Option<i64>>,
    platform: watch::Sender<Option<Platform>>,
    deleted_storage: watch::Sender<DeletedPrefixes>,
    /// `None` if the node has no object store.
    storage: Option<Arc<Storage>>,
    /// `None` if the node has no Postgres.
    databases: Option<UnboundedSender<DatabaseChanges>>,
    /// `None` if the node does not terminate TLS.
    certificates: Option<UnboundedSender<CertificateChanges>>,
    /// Whether the control plane accepted the node's credential in its last response.
    is_authorized: AtomicBool,
    cache: Arc<Cache>,
}

impl ControlPlaneState {
    /// Creates the state before the first response. `platform` contains the saved settings, if any.
    pub fn new(
        platform: watch::Sender<Option<Platform>>,
        deleted_storage: watch::Sender<DeletedPrefixes>,
        storage: Option<Arc<Storage>>,
        databases: Option<UnboundedSender<DatabaseChanges>>,
        certificates: Option<UnboundedSender<CertificateChanges>>,
        cache: Arc<Cache>,
    ) -> Self {
        Self {
            batch: watch::Sender::new(None),
            platform,
            deleted_storage,
            storage,
            databases,
            certificates,
            is_authorized: AtomicBool::new(true),
            cache,
        }
    }

    async fn record(&self, update: &DesiredUpdate) {
        self.batch.send_replace(Some(update.batch));
        self.record_deleted_storage(update);
        if !update.is_empty() {
            self.change_databases(|| update.databases.clone());
        }
        let platform = update.platform.clone();
        let is_same_platform = self.platform.borrow().as_ref() == Some(&platform);
        let have_certificates_changed = !update.certificates.is_empty() || !is_same_platform;
        if let Some(certificates) = self.certificates.as_ref().filter(|_| have_certificates_changed) {
            // The receiver is dropped only at shutdown.
            let _ = certificates.send(update.certificates.clone());
        }
        if is_same_platform {
            return;
        }
        self.platform.send_replace(Some(platform.clone()));
        let cache = Arc::clone(&self.cache);
        let saved = spawn_blocking(move || cache.save_platform(&platform)).await;
        if let Err(error) = saved.map_err(Into::into).flatten() {
            tracing::error!(%error, "failed to save the platform settings");
        }
    }

    /// Records that the control plane was restored from a backup, and has lost everything that it accepted after that
    /// backup.
    fn record_restore(&self) {
        self.change_databases(|| DatabaseChanges { is_restored: true, ..DatabaseChanges::default() });
        if let Some(storage) = &self.storage {
            storage.report_again();
        }
    }

    /// Sends changes to the databases, if the node has a Postgres.
    fn change_databases(&self, changes: impl FnOnce() -> DatabaseChanges) {
        if let Some(databases) = &self.databases {
            // The receiver is dropped only at shutdown.
            let _ = databases.send(changes());
        }
    }

    /// Records whether the control plane accepts the credential of the node.
    fn set_authorized(&self, is_authorized: bool) {
        let was_authorized = self.is_authorized.swap(is_authorized, Ordering::Relaxed);
        if was_authorized == is_authorized || self.databases.is_none() {
            return;
        }
        if is_authorized {
            tracing::info!("the control plane accepts the credential of this node again");
        } else {
            tracing::error!("the control plane rejects the credential of this node; closing all databases");
        }
        let is_authorized = Some(is_authorized);
        self.change_databases(|| DatabaseChanges { is_authorized, ..DatabaseChanges::default() });
    }

    /// Records the prefixes to delete. Also notifies if a full state changes nothing, so that a deletion is repeated if
    /// its report was lost.
    fn record_deleted_storage(&self, update: &DesiredUpdate) {
        let DesiredUpdate { full, deleted_storage: changes, .. } = update;
        if *full || !changes.is_empty() {
            self.deleted_storage.send_modify(|deleted| deleted.apply(*full, changes));
        }
        if *full && !self.deleted_storage.borrow().is_empty() && self.deleted_storage.receiver_count() == 0 {
            tracing::warn!(
                "cannot delete the objects of purged projects without an object store; set SVC_NODE_STORAGE"
            );
        }
    }
}

/// Polls and sends the changes to `updates` until its receiver is dropped.
pub async fn follow(core: Core, updates: Sender<DesiredUpdate>, state: ControlPlaneState) {
    let mut poll_interval = interval(MIN_POLL_INTERVAL);
    poll_interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let mut rejections = 0;
    let mut position = Position { since: 0, revision: 0, relist_at: Instant::now() };
    loop {
        poll_interval.tick().await;
        let since = position.next_since(Instant::now());
        match core.desired(since).await {
            Ok(update) => {
                backoff.reset();
                rejections = 0;
                if update.revision < position.revision {
                    // The control plane was restored from a backup: relist.
                    position = Position { since: 0, revision: update.revision, ..position };
                    state.record_restore();
                    continue;
                }
                position.advance(update.revision, update.full, Instant::now());
                state.record(&update).await;
                state.set_authorized(true);
                if !update.is_empty() && updates.send(update).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                rejections = if error.is::<Unauthorized>() { rejections + 1 } else { 0 };
                if rejections == MAX_REJECTIONS {
                    state.set_authorized(false);
                    // The state may change before the node is authorized again, so the node then relists.
                    position = Position { since: 0, relist_at: Instant::now(), ..position };
                }
                tracing::warn!(
                    error = format!("{error:#}"),
                    "failed to fetch the desired state; serving the last known state"
                );
                position.retry(since, Instant::now());
                sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// How far the node has followed the desired state.
struct Position {
    /// The last received revision. 0 if the next request must be a relist.
    since: i64,
    /// The last received revision, also if the next request must be a relist: the first response after a restore of the
    /// control plane can be a full state.
    revision: i64,
    relist_at: Instant,
}

impl Position {
    /// Returns the `since` of the next request; 0 requests the full state.
    fn next_since(&self, now: Instant) -> i64 {
        if now < self.relist_at { self.since } else { 0 }
    }

    fn advance(&mut self, revision: i64, full: bool, now: Instant) {
        (self.since, self.revision) = (revision, revision);
        if full {
            self.relist_at = now + RELIST_INTERVAL;
        }
    }

    /// Plans the next request after a failed one. After a failed relist, the node continues with incremental polls:
    /// they may succeed while a full response takes too long.
    fn retry(&mut self, since: i64, now: Instant) {
        if since == 0 {
            self.relist_at = now + RELIST_RETRY_DELAY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incremental_polls_continue_while_a_relist_fails() {
        let start = Instant::now();
        let mut position = Position { since: 0, revision: 0, relist_at: start };
        position.retry(0, start);
        assert_eq!(position.next_since(start), 0, "nothing to continue from");
        position.advance(7, true, start);
        assert_eq!(position.next_since(start), 7);

        let due = start + RELIST_INTERVAL;
        assert_eq!(position.next_since(due), 0);
        position.retry(7, due);
        assert_eq!(position.next_since(due), 0, "only an incremental poll failed");
        position.retry(0, due);
        assert_eq!(position.next_since(due), 7);
        position.advance(8, false, due);
        let retry = due + RELIST_RETRY_DELAY;
        assert_eq!((position.next_since(due), position.next_since(retry)), (8, 0));
        position.advance(9, true, retry);
        assert_eq!(position.next_since(retry + RELIST_RETRY_DELAY), 9);
    }
}
