//! What passes between the control plane and its nodes.

use kernel::{AccessMode, Digest, NodeId, ProjectId, Time, Token};
use serde::{Deserialize, Serialize};

kernel::text! {
    /// A node's name, for operators.
    pub struct NodeName matches "^[a-z0-9][a-z0-9.-]{0,62}$"
        means "1 to 63 characters of a-z, 0-9, . and -, beginning with a letter or a digit"
}

kernel::words! {
    /// Where a placement stands (specification, States, "Placement").
    pub enum PlacementState {
        /// No node has taken it yet.
        Pending = "pending",
        /// Its node is to serve it.
        Active = "active",
        /// Its node is to keep it, and not serve it.
        Suspended = "suspended",
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    pub id: NodeId,
    pub name: NodeName,
    pub created_at: Time,
}

/// A node as operators see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    #[serde(flatten)]
    pub node: Node,
    /// When it last asked for its desired state, to the minute; none if it never did.
    pub seen_at: Option<Time>,
    /// How many projects are at home on it.
    pub placements: i64,
}

/// A node just revoked, and what became of the projects that were at home on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub node: Node,
    /// Projects that other nodes took.
    pub moved: usize,
    /// Projects that wait for a node, because there is no other.
    pub waiting: usize,
}

/// A node just added: the one time that its credential is shown.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub node: Node,
    pub token: Token,
}

/// Whom a node lets in, and by what it tells them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SiteAccess {
    pub mode: AccessMode,
    /// The password's hash, as a PHC string (Argon2id).
    #[cfg_attr(feature = "openapi", schema(required))]
    pub password: Option<String>,
    /// SHA-256 of the key that passes by the mode, in hex.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub bypass: Option<String>,
    /// Raised by every change: what was let in before it is let in no longer.
    pub version: i32,
}

/// What a node is to serve of one project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Site {
    /// The names under which it is reached, lowercase, without a port.
    pub hostnames: Vec<String>,
    /// The bundle to serve.
    pub bundle: Digest,
    /// The bundle's size as uploaded, in bytes.
    pub size_bytes: i64,
    /// The deployment's version.
    pub version: i32,
    /// Whom to let in. Missing in what a release wrote that knew of no policies: then nobody asked for one.
    #[serde(default)]
    pub access: SiteAccess,
}

impl Default for SiteAccess {
    fn default() -> Self {
        Self { mode: AccessMode::Public, password: None, bypass: None, version: 0 }
    }
}

/// A project's place on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Placed {
    pub project: ProjectId,
    /// The node's revision at which this was decided.
    pub revision: i64,
    /// Null: serve it no longer.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub site: Option<Site>,
}

/// Where a node sends visitors, and how visitors reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// Base address of the dashboard, whose screen `/access/authorize` lets members in.
    pub dashboard_url: String,
    /// Whether visitors come over https, ended by a proxy before the node.
    pub https: bool,
}

/// What a node is to serve, or what of it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Desired {
    /// The version of this document's shape.
    pub schema: u32,
    /// What to ask with next, as `since`.
    pub revision: i64,
    /// Whether this is everything: a project that is not listed is not to be served.
    pub full: bool,
    /// The number of the node's last batch of reports that was taken in.
    pub batch: i64,
    pub platform: Platform,
    pub sites: Vec<Placed>,
}

/// A node's desired state as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub revision: i64,
    pub batch: i64,
    pub sites: Vec<Placed>,
}

impl Desired {
    /// The shape that this release writes. The second one holds whom to let in: a node that does not know of that must not
    /// go on as if everybody were.
    pub const SCHEMA: u32 = 2;
}
