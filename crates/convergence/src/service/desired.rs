//! The long poll.

use std::time::Duration;

use kernel::NodeId;
use kernel::audit::{Actor, Event};
use protocol::{Desired, SCHEMA};
use serde_json::json;
use store::Outcome;
use tokio::time::Instant;

use super::{Convergence, Result, nodes};
use crate::core::WakeUps;
use crate::error::ConvergenceError;
use crate::registry::CompleteParts;
use crate::repository::{PartRepository as _, PlacementRepository as _, StoredState};

/// The time after which a long poll reads the state again without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

const MAX_WAIT: Duration = Duration::from_secs(30);

impl Convergence {
    /// Returns the full desired state of the node if `since` is 0, otherwise the changes after that revision. Waits for
    /// the first change for up to `wait`, but at most for 30 seconds. A large state has several pages: the first parts by
    /// revision are the first page, and the changes after its last revision follow. A part that changes between two pages
    /// gets a higher revision, so it is in a later page.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::UnknownNode`] for a revoked node, [`ConvergenceError::NoCore`].
    pub async fn desired(&self, node: NodeId, since: i64, wait: Duration) -> Result<Desired> {
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        // Subscribe before the first read, so that the poll does not miss a change between the read and the wait.
        let mut wake_ups = self.core()?.subscribe();
        loop {
            let mut connection = self.store.connection().await?;
            let stored = connection.desired_since(node, since).await?.ok_or(ConvergenceError::UnknownNode)?;
            drop(connection);
            if since == 0 && self.assign_pending(node).await? > 0 {
                continue;
            }
            if since == 0 || stored.revision != since || Instant::now() >= deadline {
                return self.build_document(stored, since == 0).await;
            }
            wait_for_change(&mut wake_ups, node, deadline.min(Instant::now() + POLL_INTERVAL)).await;
        }
    }

    /// Assigns the pending projects that the node can serve to it, and returns their number. If a first deployment runs
    /// while the first node is added, neither transaction sees the other, and the project stays pending. The next
    /// relist of the node assigns it.
    pub(super) async fn assign_pending(&self, node: NodeId) -> Result<usize> {
        if !self.store.connection().await?.placement_has_pending().await? {
            return Ok(0);
        }
        self.store
            .transaction(&Actor::service("convergence.assign_pending"), async |tx| {
                let assigned = nodes::assign_pending(tx, node).await?;
                if assigned == 0 {
                    return Ok(Outcome::Unchanged(0));
                }
                self.writer.wake(tx, Some(node)).await?;
                let (target, data) = (node.to_string(), json!({ "projects": assigned }));
                Ok(Outcome::Changed(assigned, Event::of_platform("node.assign", target, data)))
            })
            .await
    }

    /// Builds the response. A value that is loaded here can be newer than its revision. The node then receives the
    /// value again with the newer revision.
    async fn build_document(&self, stored: StoredState, full: bool) -> Result<Desired> {
        let StoredState { revision, batch, parts, has_more } = stored;
        let last = parts.last().map(|part| part.revision).filter(|_| has_more);
        let CompleteParts { parts, unavailable, left_out_after } = self.registry.complete(&self.store, parts).await?;
        let page_end = left_out_after.or(last);
        let (revision, has_more) = (page_end.unwrap_or(revision), page_end.is_some());
        let mut platform = (*self.platform).clone();
        if let Some(source) = &self.platform_certificates {
            platform.certificates = source.load(&mut *self.store.connection().await?).await?;
        }
        Ok(Desired { schema: SCHEMA, revision, full, has_more, batch, platform, parts, unavailable })
    }
}

/// Waits for a wake-up of `node`, until the deadline.
async fn wait_for_change(wake_ups: &mut WakeUps, node: NodeId, deadline: Instant) {
    if tokio::time::timeout_at(deadline, wake_ups.wait_for_change(node)).await.is_err() {
        tracing::trace!("no wake-up; polling again");
    }
}
