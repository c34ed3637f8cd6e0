//! Taking in what nodes report.

use kernel::NodeId;

use super::{Convergence, Result};
use crate::error::ConvergenceError;
use crate::report::{Receipt, Report};
use crate::repository::ConvergenceRepository as _;

impl Convergence {
    /// Takes a batch in, once: of a number that was taken in before nothing changes. What it says of projects that are not
    /// at home on the node is passed over; they went elsewhere while the report was on its way.
    ///
    /// # Errors
    /// [`ConvergenceError::UnknownNode`] for a node that is gone, [`ConvergenceError::NoCore`].
    pub async fn report(&self, node: NodeId, report: Report) -> Result<Receipt> {
        self.core()?;
        let Report { batch, deployments } = report;
        self.store
            .observe(async |tx| {
                if !tx.node_take_batch(node, batch).await? {
                    let batch = tx.node_batch(node).await?.ok_or(ConvergenceError::UnknownNode)?;
                    return Ok(Receipt { batch });
                }
                let projects: Vec<_> = deployments.iter().map(|report| report.project).collect();
                let ours = tx.placement_at(node, &projects).await?;
                for report in deployments.iter().filter(|report| ours.contains(&report.project)) {
                    let message = report.message.as_deref();
                    self.deployments.observed(tx, report.project, report.version, report.state, message).await?;
                }
                Ok(Receipt { batch })
            })
            .await
    }
}
