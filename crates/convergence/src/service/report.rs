//! Acceptance of reports.

use kernel::{NodeId, ProjectId};
use protocol::{Batch, Receipt};

use super::{Convergence, Result};
use crate::error::ConvergenceError;
use crate::registry::invalid_report;
use crate::repository::{NodeRepository as _, PlacementRepository as _};

impl Convergence {
    /// Accepts a batch, and passes each report to the receiver of its kind. Ignores a batch if its number or a greater
    /// one was accepted before. Also ignores a report about a project that is not placed on the node, because the
    /// project moved while the report was in flight.
    ///
    /// # Errors
    /// Returns [`ConvergenceError::InvalidReport`] for an unknown kind or malformed content, which rejects the whole
    /// batch. Returns [`ConvergenceError::UnknownNode`] for a revoked node, or [`ConvergenceError::NoCore`].
    pub async fn report(&self, node: NodeId, batch: Batch) -> Result<Receipt> {
        self.core()?;
        let Batch { batch, reports } = batch;
        let receivers = self.registry.receivers(&reports)?;
        let project = |(index, project): (usize, &String)| {
            project.parse::<ProjectId>().map_err(|error| invalid_report(index, "project", error))
        };
        let projects = reports.iter().map(|report| &report.project).enumerate().map(project);
        let projects = projects.collect::<Result<Vec<_>>>()?;
        self.store
            .transaction_unaudited(async |tx| {
                // Lock the placements before the node, as in all transactions that change the desired state, so that a
                // receiver can write parts.
                let placed = tx.placement_lock_on_node(node, &projects).await?;
                if !tx.node_accept_batch(node, batch).await? {
                    let batch = tx.node_last_batch(node).await?.ok_or(ConvergenceError::UnknownNode)?;
                    return Ok(Receipt { batch });
                }
                for (index, ((report, receiver), project)) in
                    reports.into_iter().zip(receivers).zip(projects).enumerate()
                {
                    if placed.contains(&project) {
                        receiver.dispatch(tx, index, project, report.report).await?;
                    }
                }
                Ok(Receipt { batch })
            })
            .await
    }
}
