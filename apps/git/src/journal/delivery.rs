//! Delivers updates to the control plane.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::{GitUpdate, GitUpdates};
use semaphores::KeyedSemaphores;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Journal;
use super::book::Transaction;
use crate::core::Core;
use crate::deploy::Deployer;
use crate::git::{Git, decide};
use crate::metrics::Metrics;
use crate::update::Update;

/// The maximum number of updates per request to the control plane.
const MAX_UPDATES_PER_REQUEST: usize = 1000;
/// The maximum number of repositories whose updates are delivered at the same time.
const MAX_DELIVERIES: usize = 8;
/// The maximum number of these repositories whose next update is by the same user.
const MAX_DELIVERIES_PER_PUSHER: usize = 2;
/// The maximum duration of all comparisons of commits in a delivery. Further updates count as forced.
const MAX_COMPARISONS: Duration = Duration::from_secs(10);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The maximum delay before a failed delivery is repeated.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// The permits of deliveries. A delivery has one for its pusher and one of the node.
struct DeliveryPermits {
    pushers: KeyedSemaphores<String>,
    all: Semaphore,
}

impl Journal {
    /// Delivers updates to the control plane, and starts their deploys. Handles several repositories at the same time,
    /// few of them for the same user, and the updates of each repository in order.
    pub async fn deliver_all(
        self,
        core: Core,
        deployer: Deployer,
        mut changed: mpsc::UnboundedReceiver<String>,
        metrics: Metrics,
    ) {
        let permits = Arc::new(DeliveryPermits {
            pushers: KeyedSemaphores::new(MAX_DELIVERIES_PER_PUSHER),
            all: Semaphore::new(MAX_DELIVERIES),
        });
        let (mut running, mut again) = (HashSet::new(), HashSet::new());
        let mut deliveries = JoinSet::new();
        loop {
            let next = tokio::select! {
                changed = changed.recv() => {
                    let Some(repository) = changed else { return };
                    if running.contains(&repository) {
                        again.insert(repository);
                        continue;
                    }
                    repository
                }
                Some(ended) = deliveries.join_next() => {
                    // The task panicked. The updates are still in the journal, and are delivered after a restart.
                    let Ok(repository) = ended else { return };
                    running.remove(&repository);
                    if !again.remove(&repository) {
                        continue;
                    }
                    repository
                }
            };
            running.insert(next.clone());
            let (journal, core, deployer) = (self.clone(), core.clone(), deployer.clone());
            let (metrics, permits) = (metrics.clone(), Arc::clone(&permits));
            deliveries.spawn(async move {
                journal.deliver_until_done(&core, &deployer, &next, &metrics, &permits).await;
                next
            });
        }
    }

    async fn deliver_until_done(
        &self,
        core: &Core,
        deployer: &Deployer,
        repository: &str,
        metrics: &Metrics,
        permits: &DeliveryPermits,
    ) {
        let mut delay = MIN_RETRY_DELAY;
        loop {
            match self.deliver_in_turn(core, deployer, repository, permits).await {
                Ok(delivered) => return metrics.delivered(delivered),
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), repository, "failed to deliver updates of refs");
                }
            }
            tokio::time::sleep(delay).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Waits for the permits of a delivery, and delivers the updates of a repository. Returns their number.
    async fn deliver_in_turn(
        &self,
        core: &Core,
        deployer: &Deployer,
        repository: &str,
        permits: &DeliveryPermits,
    ) -> anyhow::Result<usize> {
        let next = self.state(repository).access_book(|book| book.next_pusher()).await?;
        let Some(pusher) = next else { return Ok(0) };
        // The pusher's permit is acquired first. So a user with many repositories has few places in the queue.
        let _share = permits.pushers.of(pusher).acquire_owned().await;
        let _permit = permits.all.acquire().await;
        self.deliver(core, deployer, repository).await
    }

    /// Delivers the updates of a repository that are known to have taken effect. Returns their number. Later updates
    /// start another delivery, so that the repositories that wait can use the permit first.
    async fn deliver(&self, core: &Core, deployer: &Deployer, repository: &str) -> anyhow::Result<usize> {
        let state = self.state(repository);
        let (transactions, after) = state.access_book(|book| (book.decided(), book.after)).await?;
        let (repositories, count) = (&self.0.repositories, transactions.len());
        if count == 0 {
            return Ok(0);
        }
        let (git, path) = (repositories.git().clone(), repositories.path(repository)?);
        let updates = updates(&git, &path, transactions, after).await;
        for chunk in updates.chunks(MAX_UPDATES_PER_REQUEST) {
            let report = chunk.iter().map(|(_, update)| update.clone()).collect();
            let receipt = core.report(&GitUpdates { repository: repository.to_owned(), updates: report }).await?;
            if receipt.has_deploys {
                // The deploy runs in the background: the delivery does not wait for it.
                deployer.start(repository.to_owned());
            }
            chunk.iter().for_each(|(push, update)| self.note_number(push, update));
        }
        let after = after + i64::try_from(updates.len())?;
        state.access_book(move |book| book.forget(count, after)).await??;
        state.delivered.notify_waiters();
        Ok(updates.len())
    }
}

/// Returns the updates of the transactions that took effect, with their pushes and their numbers.
async fn updates(git: &Git, repository: &Path, transactions: Vec<Transaction>, after: i64) -> Vec<(String, GitUpdate)> {
    let deadline = Instant::now() + MAX_COMPARISONS;
    let (mut numbered, mut number, mut uncompared) = (Vec::new(), after, 0_usize);
    for transaction in transactions.into_iter().filter(|transaction| transaction.outcome == Some(true)) {
        let Transaction { push, pusher, credential, at, updates, .. } = transaction;
        for Update { name, old, new } in updates {
            number += 1;
            let forced = match (&old, &new) {
                (Some(old), Some(new)) if name.starts_with("refs/heads/") => {
                    let limit = deadline.saturating_duration_since(Instant::now());
                    uncompared += usize::from(limit.is_zero());
                    limit.is_zero() || !is_ancestor(git, repository, old, new, limit).await
                }
                _ => false,
            };
            let (pusher, credential, at) = (pusher.clone(), credential.clone(), at.clone());
            numbered.push((push.clone(), GitUpdate { number, name, old, new, forced, pusher, credential, at }));
        }
    }
    if uncompared > 0 {
        let repository = repository.display();
        tracing::warn!(%repository, uncompared, "compared only some updates in time; the others count as forced");
    }
    numbered
}

/// Returns whether the ref still contains all its earlier commits after the update. Returns false if git cannot decide
/// within `limit`; the update then counts as forced.
async fn is_ancestor(git: &Git, repository: &Path, old: &str, new: &str, limit: Duration) -> bool {
    let mut command = git.maintenance(Some(repository));
    command.args(["merge-base", "--is-ancestor", old, new]);
    decide(command, limit).await.unwrap_or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "cannot compare the commits of an update");
        false
    })
}
