//! Saves the served state for the next start, which may be during an outage of the control plane.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use daemon::Backoff;
use futures_util::future::OptionFuture;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use crate::cache::Cache;
use crate::desired::Placements;
use crate::digest::Digest;
use crate::environment::{Environment, Environments};

/// The longest delay before a failed save is retried.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The placements and environments that differ from the saved ones.
pub struct Saver {
    cache: Arc<Cache>,
    environments: Arc<Environments>,
    /// Whether the placements differ from the saved ones.
    is_changed: bool,
    /// The failed saves, repeated at `retry_at`.
    failed: Failed,
    retry_at: Option<Instant>,
    backoff: Backoff,
}

#[derive(Default)]
struct Failed {
    /// The projects whose environments could not be saved.
    environments: Vec<String>,
    placements: bool,
}

impl Saver {
    /// Creates a saver that saves the placements with the first [`Self::save`].
    pub fn new(cache: Arc<Cache>, environments: Arc<Environments>) -> Self {
        let (failed, backoff) = (Failed::default(), Backoff::up_to(MAX_RETRY_DELAY));
        Self { cache, environments, is_changed: true, failed, retry_at: None, backoff }
    }

    /// Saves the placements with the next [`Self::save`].
    pub const fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Waits until the retry of failed saves; `None` if none failed.
    pub async fn wait_for_retry(&self) -> Option<()> {
        OptionFuture::from(self.retry_at.map(sleep_until)).await
    }

    /// Saves the changes, and records the last use of the bundles that are no longer needed. A file that cannot be
    /// saved does not affect the others, and is retried.
    pub async fn save(&mut self, placements: &Placements, dropped: Vec<Digest>) {
        if self.retry_at.take_if(|at| *at <= Instant::now()).is_some() {
            let Failed { environments, placements } = mem::take(&mut self.failed);
            self.environments.set_unsaved(environments);
            self.is_changed |= placements;
        }
        let environments = self.environments.take_unsaved();
        let placements = mem::take(&mut self.is_changed).then(|| placements.clone());
        if environments.is_empty() && placements.is_none() && dropped.is_empty() {
            return;
        }
        let cache = Arc::clone(&self.cache);
        let save = move || {
            // The environments are saved before the placements, so that a new version never starts with an older
            // environment.
            let save = |(project, environment): (String, Option<Arc<Environment>>)| {
                let saved = cache.save_environment(&project, environment.as_deref());
                has_failed(saved, "the environment of a project").then_some(project)
            };
            let environments = environments.into_iter().filter_map(save).collect();
            let placements =
                placements.is_some_and(|placements| has_failed(cache.save_placements(&placements), "the placements"));
            for bundle in dropped {
                has_failed(cache.record_use(bundle), "the last use of a bundle");
            }
            Failed { environments, placements }
        };
        match spawn_blocking(save).await {
            Ok(failed) => self.schedule_retry(failed),
            Err(error) => tracing::error!(%error, "the task that saves the desired state failed"),
        }
    }

    fn schedule_retry(&mut self, Failed { environments, placements }: Failed) {
        if placements || !environments.is_empty() {
            self.failed.environments.extend(environments);
            self.failed.placements |= placements;
            self.retry_at.get_or_insert_with(|| Instant::now() + self.backoff.next_delay());
        } else if self.retry_at.is_none() {
            self.backoff.reset();
        }
    }
}

fn has_failed(saved: io::Result<()>, what: &str) -> bool {
    saved.inspect_err(|error| tracing::error!(%error, what, "failed to save")).is_err()
}
