//! What can go wrong between the control plane and its nodes.

use kernel::{Code, Failure, Kind, Malformed};

use crate::model::NodeName;

/// A refused request, or a database that is away.
#[derive(Debug, thiserror::Error)]
pub enum ConvergenceError {
    #[error("there is a node named {0} already")]
    NodeNameTaken(NodeName),
    #[error("the node's credential is not valid")]
    UnknownNode,
    #[error("no placement of this node uses the bundle")]
    NotPlacedHere,
    #[error("there is no node named {0}")]
    NoSuchNode(NodeName),
    #[error("this deployment has no link to its nodes; its operator turned it off")]
    NoCore,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl ConvergenceError {
    /// 409: add a node under a name in use.
    pub const NODE_NAME_TAKEN: Code = Code::new("node_name_taken", Kind::Conflict, "Another node has the name.");
    /// 503: what reaches nodes, while the link to them is off (contract section 12, `SVC_CORE`).
    pub const NO_CORE: Code = Code::new("no_core", Kind::Unavailable, "The link to the nodes is off or down.");
}

impl Failure for ConvergenceError {
    fn code(&self) -> &'static Code {
        match self {
            Self::NodeNameTaken(_) => &Self::NODE_NAME_TAKEN,
            Self::UnknownNode => &Code::UNAUTHENTICATED,
            Self::NoCore => &Self::NO_CORE,
            Self::Malformed(_) => &Code::BAD_REQUEST,
            Self::NoSuchNode(_) | Self::NotPlacedHere => &Code::NOT_FOUND,
            Self::Store(error) => error.code(),
        }
    }

    fn details(&self) -> Option<serde_json::Value> {
        match self {
            Self::Malformed(malformed) => Some(malformed.details()),
            _ => None,
        }
    }
}
