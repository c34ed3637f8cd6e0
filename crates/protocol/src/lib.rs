//! The wire types between the control plane and its nodes: desired state, reports, and the access round trip.
//!
//! The control plane and every node use these types, so the two sides cannot drift apart. The crate depends on no other
//! crate of the workspace but `sha256`: ids are texts here, and the control plane parses them.
//!
//! A context that wants something of a node adds a [`DesiredPart`]; a node that has something to tell adds a
//! [`ReportKind`]. `docs/convergence.md` describes the protocol.

mod desired;
mod report;
mod site;
mod visitor;

pub use desired::{Change, Desired, DesiredPart, Platform, SCHEMA};
pub use report::{Batch, DeploymentReport, DeploymentState, Receipt, Report, ReportKind};
pub use sha256::{Digest, Digester, InvalidDigest};
pub use site::{AccessMode, Site, SiteAccess};
pub use visitor::{Redeem, Redeemed};
