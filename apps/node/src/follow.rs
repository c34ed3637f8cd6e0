//! Asking what to serve.
//!
//! Level-triggered: the control plane's table is the truth and a long poll only wakes. The first question after a start
//! is for everything, and so is one every [`RELIST`], which finds whatever a poll may have missed.

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
use crate::desired::Answer;

const RELIST: Duration = Duration::from_secs(5 * 60);
/// The control plane answers at once when it is asked for everything, also when that is nothing.
const PACE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What every answer tells beside the sites.
pub struct Told {
    /// The number of the last batch of reports that the control plane has.
    pub batch: watch::Sender<Option<i64>>,
    platform: watch::Sender<Option<Platform>>,
    cache: Arc<Cache>,
}

impl Told {
    /// Nothing yet, but for the platform, if it is known from before.
    pub fn new(platform: watch::Sender<Option<Platform>>, cache: Arc<Cache>) -> Self {
        Self { batch: watch::Sender::new(None), platform, cache }
    }

    async fn note(&self, answer: &Answer) {
        self.batch.send_replace(Some(answer.batch));
        let platform = answer.platform.clone();
        if self.platform.borrow().as_ref() == Some(&platform) {
            return;
        }
        self.platform.send_replace(Some(platform.clone()));
        let cache = Arc::clone(&self.cache);
        let saved = spawn_blocking(move || cache.save_platform(&platform)).await;
        if let Err(error) = saved.map_err(Into::into).flatten() {
            tracing::error!(%error, "where visitors sign in cannot be saved");
        }
    }
}

/// Asks for ever, and hands on what is answered; ends when nobody listens.
pub async fn follow(core: Core, news: Sender<Answer>, told: Told) {
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut backoff = Backoff::up_to(LONGEST_PAUSE);
    let mut since = 0;
    let mut listed = Instant::now();
    loop {
        pace.tick().await;
        if listed.elapsed() >= RELIST {
            since = 0;
        }
        match core.desired(since).await {
            // It was set back, to a backup say: nothing that we know of it holds.
            Ok(answer) if answer.revision < since => since = 0,
            Ok(answer) => {
                backoff.reset();
                since = answer.revision;
                if answer.full {
                    listed = Instant::now();
                }
                told.note(&answer).await;
                if !answer.is_empty() && news.send(answer).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "the desired state is not to be had; serving goes on");
                sleep(backoff.pause()).await;
            }
        }
    }
}
