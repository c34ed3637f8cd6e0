//! What passes between the control plane and its nodes.

use kernel::{Digest, NodeId, ProjectId, Time, Token};
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

/// A node just added: the one time that its credential is shown.
#[derive(Debug, Clone)]
pub struct NewNode {
    pub node: Node,
    pub token: Token,
}

kernel::words! {
    /// Whom a node lets in.
    pub enum AccessMode {
        /// Everybody.
        Public = "public",
        /// Members of the organization.
        Org = "org",
        /// Whoever knows the password.
        Password = "password",
    }
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
    pub sites: Vec<Placed>,
}

impl Desired {
    /// The shape that this release writes. The second one holds whom to let in: a node that does not know of that must not
    /// go on as if everybody were.
    pub const SCHEMA: u32 = 2;
}
