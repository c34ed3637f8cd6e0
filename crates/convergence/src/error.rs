//! The errors of convergence.

use kernel::{ApiError, Code, InvalidField, Kind};

use crate::model::NodeName;

/// An error of a convergence operation.
#[derive(Debug, thiserror::Error)]
pub enum ConvergenceError {
    #[error("a node named {0} already exists")]
    NodeNameTaken(NodeName),
    #[error("the installation already has a git node; revoke it first")]
    GitNodeExists,
    #[error("the node's credential is not valid")]
    UnknownNode,
    #[error("no placement of this node uses the bundle")]
    NotPlacedOnNode,
    #[error("the project was deleted")]
    ProjectDeleted,
    #[error("node {0} does not exist; `xtask node list` lists the nodes")]
    NodeNotFound(NodeName),
    #[error("the project has no placement; deploy it or give it a resource first")]
    PlacementNotFound,
    #[error("an operation on the project's database is in progress; wait until it has ended, or abort it")]
    PlacementBusy,
    #[error("the link to the nodes is turned off; ask the operator of this installation")]
    NoCore,
    #[error(transparent)]
    InvalidReport(#[from] InvalidField),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ConvergenceError {
    /// 409: the node's name is in use.
    pub const NODE_NAME_TAKEN: Code = Code::new("node_name_taken", Kind::Conflict, "Another node has this name.");
    /// 409: another git node exists. No route returns this.
    pub const GIT_NODE_EXISTS: Code =
        Code::new("git_node_exists", Kind::Conflict, "The installation already has a git node.");
    /// 409: an operation on the database must end first. No route returns this.
    pub const PLACEMENT_BUSY: Code =
        Code::new("placement_busy", Kind::Conflict, "An operation on the project's database is in progress.");
    /// 503: the operation needs the link to the nodes, which is off (contract section 12, `SVC_CORE`).
    pub const NO_CORE: Code = Code::new("no_core", Kind::Unavailable, "The link to the nodes is off or down.");
}

impl ApiError for ConvergenceError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NodeNameTaken(_) => &Self::NODE_NAME_TAKEN,
            Self::GitNodeExists => &Self::GIT_NODE_EXISTS,
            Self::UnknownNode => &Code::UNAUTHENTICATED,
            Self::NoCore => &Self::NO_CORE,
            Self::InvalidReport(_) => &Code::BAD_REQUEST,
            Self::NodeNotFound(_) | Self::NotPlacedOnNode | Self::ProjectDeleted | Self::PlacementNotFound => {
                &Code::NOT_FOUND
            }
            Self::PlacementBusy => &Self::PLACEMENT_BUSY,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<serde_json::Value> {
        match self {
            Self::InvalidReport(field) => Some(field.details()),
            _ => None,
        }
    }
}
