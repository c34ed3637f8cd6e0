//! The overview of a project (contract section 5).

use super::Deployment;

/// The part of a project's overview that this context owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// The live deployment; none before the first one.
    pub live: Option<Deployment>,
    /// The last five deployments.
    pub deployments: Vec<Deployment>,
}
