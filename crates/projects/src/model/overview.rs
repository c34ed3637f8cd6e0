//! The overview of a project (contract section 5).

use super::Deployment;

/// The part of a project's overview that this context owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The live deployment. `None` before the first deployment.
    pub live: Option<Deployment>,
    /// The last five deployments.
    pub deployments: Vec<Deployment>,
}
