//! The long poll.

use std::time::Duration;

use kernel::NodeId;
use kernel::audit::{Actor, Event};
use protocol::{Desired, SCHEMA};
use serde_json::json;
use store::Outcome;
use tokio::time::Instant;

use super::nodes::adopt;
use super::{Convergence, Result};
use crate::core::Watch;
use crate::error::ConvergenceError;
use crate::repository::{NodeRepository as _, PartRepository as _, PlacementRepository as _, Stored};

/// How long a waiting poll trusts the wake-up before it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The longest that a poll is kept waiting.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Convergence {
    /// What the node is to serve: everything for `since` 0, else what changed after that revision, waiting up to
    /// `wait` for the first change.
    ///
    /// # Errors
    /// [`ConvergenceError::UnknownNode`] for a node that is gone, [`ConvergenceError::NoCore`].
    pub async fn desired(&self, node: NodeId, since: i64, wait: Duration) -> Result<Desired> {
        let until = Instant::now() + wait.min(LONGEST_WAIT);
        // From before the first look, so that no change falls between looking and waiting.
        let mut watch = self.core()?.watch();
        self.store.connection().await?.node_seen(node, self.store.world().now()).await?;
        loop {
            let mut connection = self.store.connection().await?;
            let stored = connection.desired_since(node, since).await?.ok_or(ConvergenceError::UnknownNode)?;
            drop(connection);
            if since == 0 && self.adopt_waiting(node).await? {
                continue;
            }
            if since == 0 || stored.revision != since || Instant::now() >= until {
                return self.document(stored, since == 0);
            }
            woken(&mut watch, node, until.min(Instant::now() + LOOK_AGAIN)).await;
        }
    }

    /// Gives the node whatever waits for one. A project may be deployed for the first time in the very moment in which the
    /// first node is added, and neither see the other; the next full listing finds it. Tells whether there was anything.
    async fn adopt_waiting(&self, node: NodeId) -> Result<bool> {
        if !self.store.connection().await?.placement_is_waiting().await? {
            return Ok(false);
        }
        self.store
            .transaction(&Actor::operator("convergence"), async |tx| {
                let adopted = adopt(tx, node).await?;
                if adopted == 0 {
                    return Ok(Outcome::Unchanged(false));
                }
                let (target, data) = (node.to_string(), json!({ "projects": adopted }));
                Ok(Outcome::Changed(true, Event { name: "node.adopt", org: None, target, data }))
            })
            .await
    }

    fn document(&self, stored: Stored, full: bool) -> Result<Desired> {
        let Stored { revision, batch, parts } = stored;
        parts.iter().try_for_each(|part| self.registry.check(part))?;
        Ok(Desired { schema: SCHEMA, revision, full, batch, platform: (*self.platform).clone(), parts })
    }
}

/// Waits until `node` may have changed, at the latest until `until`.
async fn woken(watch: &mut Watch, node: NodeId, until: Instant) {
    if tokio::time::timeout_at(until, watch.changed(node)).await.is_err() {
        tracing::trace!("no wake-up; looking again");
    }
}
