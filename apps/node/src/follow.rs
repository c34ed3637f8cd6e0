//! The long poll of the desired state.
//!
//! Level-triggered: the control plane's state is authoritative, and a long poll is only a wake-up. The node relists at
//! startup and every [`RELIST_INTERVAL`], which finds changes that a poll missed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use protocol::Platform;
use tokio::sync::mpsc::Sender;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::backoff::Backoff;
use crate::cache::Cache;
use crate::client::Core;
use crate::desired::DesiredUpdate;

const RELIST_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The minimum interval between requests: a request for the full state returns immediately, even if it is empty.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(200);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// The parts of each response other than the sites.
pub struct ControlPlaneState {
    /// The number of the last batch of reports that the control plane received.
    pub batch: watch::Sender<Option<i64>>,
    platform: watch::Sender<Option<Platform>>,
    cache: Arc<Cache>,
}

impl ControlPlaneState {
    /// The state before the first response; `platform` holds the saved settings, if any.
    pub fn new(platform: watch::Sender<Option<Platform>>, cache: Arc<Cache>) -> Self {
        Self { batch: watch::Sender::new(None), platform, cache }
    }

    async fn record(&self, update: &DesiredUpdate) {
        self.batch.send_replace(Some(update.batch));
        let platform = update.platform.clone();
        if self.platform.borrow().as_ref() == Some(&platform) {
            return;
        }
        self.platform.send_replace(Some(platform.clone()));
        let cache = Arc::clone(&self.cache);
        let saved = spawn_blocking(move || cache.save_platform(&platform)).await;
        if let Err(error) = saved.map_err(Into::into).flatten() {
            tracing::error!(%error, "failed to save the platform settings");
        }
    }
}

/// Polls and sends the changes to `updates` until its receiver is dropped.
pub async fn follow(core: Core, updates: Sender<DesiredUpdate>, state: ControlPlaneState) {
    let mut poll_interval = interval(MIN_POLL_INTERVAL);
    poll_interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    let mut since = 0;
    let mut last_relist = Instant::now();
    loop {
        poll_interval.tick().await;
        if last_relist.elapsed() >= RELIST_INTERVAL {
            since = 0;
        }
        match core.desired(since).await {
            // The control plane was restored from a backup: relist.
            Ok(update) if update.revision < since => since = 0,
            Ok(update) => {
                backoff.reset();
                since = update.revision;
                if update.full {
                    last_relist = Instant::now();
                }
                state.record(&update).await;
                if !update.is_empty() && updates.send(update).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "failed to fetch the desired state; serving the last known state"
                );
                sleep(backoff.next_delay()).await;
            }
        }
    }
}
