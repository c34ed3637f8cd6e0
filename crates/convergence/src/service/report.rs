//! Accepting reports.

use kernel::{NodeId, ProjectId};
use protocol::{Batch, Receipt};

use super::{Convergence, Result};
use crate::error::ConvergenceError;
use crate::registry::malformed;
use crate::repository::{NodeRepository as _, PlacementRepository as _};

impl Convergence {
    /// Accepts a batch once, and hands each report to the context that registered for its kind: a number that was accepted
    /// before changes nothing. Reports about projects that are not at home on the node are ignored; such a project moved
    /// while the report was in flight.
    ///
    /// # Errors
    /// [`ConvergenceError::Malformed`] for a report of an unknown kind or of another shape, and then the batch is not
    /// accepted; [`ConvergenceError::UnknownNode`] for a node that is gone; [`ConvergenceError::NoCore`].
    pub async fn report(&self, node: NodeId, batch: Batch) -> Result<Receipt> {
        self.core()?;
        let Batch { batch, reports } = batch;
        let receivers = self.registry.receivers(&reports)?;
        let project = |(at, project): (usize, &String)| {
            project.parse::<ProjectId>().map_err(|error| malformed(at, "project", error))
        };
        let projects = reports.iter().map(|report| &report.project).enumerate().map(project);
        let projects = projects.collect::<Result<Vec<_>>>()?;
        self.store
            .observe(async |tx| {
                if !tx.node_take_batch(node, batch).await? {
                    let batch = tx.node_batch(node).await?.ok_or(ConvergenceError::UnknownNode)?;
                    return Ok(Receipt { batch });
                }
                let ours = tx.placement_at(node, &projects).await?;
                for (at, ((report, receiver), project)) in reports.into_iter().zip(receivers).zip(projects).enumerate()
                {
                    if ours.contains(&project) {
                        receiver.dispatch(tx, at, project, report.report).await?;
                    }
                }
                Ok(Receipt { batch })
            })
            .await
    }
}
