//! The calls of the git node: it asks whether a client may access a repository, and again before a push changes refs. It
//! reports the updates of refs, and deploys pushes.
//!
//! The node numbers the updates of a repository from 1, without gaps, in the order in which they took effect. It may
//! report an update repeatedly; the control plane records each number once.

use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use validator::Validate;

use crate::secrets::SecretValue;

/// A request to access a repository, with the client's password or key. An anonymous client has neither.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitAccessRequest {
    /// A personal access token, or another password.
    pub password: Option<SecretValue>,
    /// The fingerprint of an SSH key whose private key the client has: `SHA256:…`.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub ssh_key: Option<String>,
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub org: String,
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub project: String,
    /// The name of the repository, without `.git`.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub repository: String,
    /// Whether the client pushes.
    #[cfg_attr(feature = "openapi", schema(example = false))]
    pub write: bool,
}

/// An SSH key whose private key a client has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitKey {
    /// The fingerprint: `SHA256:…`.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub ssh_key: String,
}

/// The user who registered an SSH key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitKeyUser {
    /// The user; null if the key is not registered.
    pub user: Option<String>,
}

/// The decision about an access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum GitAccess {
    Allowed(GitGrant),
    /// The credential is missing or not valid.
    Unauthenticated,
    /// The client may read the repository, but this operation is not allowed. Contains a message for the user.
    Forbidden(String),
    /// The repository does not exist for this client.
    NotFound,
}

/// An access that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitGrant {
    /// an id that starts with rep_
    pub repository: String,
    pub default_branch: String,
    /// The branch whose pushes are deployed.
    pub deploy_branch: Option<String>,
    /// The user; null for an anonymous client.
    pub user: Option<String>,
    /// The name of the credential in reports. It is not a secret.
    pub credential: Option<String>,
    /// The number of the last update of a ref that the control plane recorded.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 7))]
    pub last_update: i64,
    /// The number of bytes that the client may push; null for other accesses.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 10_737_418_240_i64))]
    pub max_push_bytes: Option<u64>,
}

/// The user and the credential of a push in progress, from its grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitPusher {
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub user: String,
    #[cfg_attr(feature = "openapi", schema(max_length = 128), validate(length(max = 128)))]
    pub credential: String,
}

/// The decision about a push in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum GitPushDecision {
    Allowed,
    /// The push must not change the repository. Contains the reason for the user.
    Refused(String),
}

/// Updates of the refs of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitUpdates {
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub repository: String,
    /// The updates, in ascending order of their numbers.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000), validate(length(max = 1000), nested))]
    pub updates: Vec<GitUpdate>,
}

/// An update of a ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitUpdate {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8), validate(range(min = 1)))]
    pub number: i64,
    /// The full name.
    #[serde(rename = "ref")]
    #[cfg_attr(feature = "openapi", schema(max_length = 1024), validate(length(max = 1024)))]
    pub name: String,
    /// The object id before the update; null for a new ref.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub old: Option<String>,
    /// The object id after the update; null for a deleted ref.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub new: Option<String>,
    /// Whether the update removed commits from a branch. False for other refs.
    #[cfg_attr(feature = "openapi", schema(example = false))]
    pub forced: bool,
    /// The user who pushed.
    #[cfg_attr(feature = "openapi", schema(max_length = 64), validate(length(max = 64)))]
    pub pusher: Option<String>,
    /// The name of the push's credential, from the grant.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(max_length = 128), validate(length(max = 128)))]
    pub credential: Option<String>,
    /// The time of the update (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(max_length = 64, example = "2026-11-21T09:00:00.000Z"))]
    #[cfg_attr(feature = "openapi", validate(length(max = 64)))]
    pub at: String,
}

/// The URL and the secret with which the control plane reaches the git node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitNodeInfo {
    /// The base URL of the node's internal listener.
    #[cfg_attr(feature = "openapi", schema(max_length = 255), validate(length(max = 255)))]
    pub url: String,
    /// The bearer token that the node expects at that listener.
    pub secret: SecretValue,
}

/// Repositories, by id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitRepositories {
    #[cfg_attr(feature = "openapi", schema(max_items = 100), validate(length(max = 100)))]
    pub repositories: Vec<String>,
}

/// The objects and the owner of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitObjects {
    /// The ids of the objects that the updates of refs list as `old`. They must stay readable.
    pub objects: Vec<String>,
    /// The organization, or its creator while it has the free plan. The node maintains only one repository of an owner
    /// at a time. Null if the repository or its project is deleted.
    pub owner: Option<String>,
}

/// The size of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitSize {
    /// The number of bytes that it uses on the disk.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 65_536))]
    pub size_bytes: u64,
}

/// The response to a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitReceipt {
    /// Whether pushes to the repository wait for their deploy.
    #[cfg_attr(feature = "openapi", schema(example = false))]
    pub has_deploys: bool,
}

/// The next push to deploy in a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitNextDeploy {
    pub deploy: Option<GitDeploy>,
    /// The number of earlier pushes that this request rejected.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 0))]
    pub rejected: u64,
}

/// A push to deploy: the node packs the tree of the commit, and uploads the bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GitDeploy {
    /// The number of the ref update.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8))]
    pub number: i64,
    pub commit: String,
    /// The user who pushed. The node runs only one deploy of a user at a time.
    pub user: String,
    /// The organization, an id that starts with org_. The node runs only one deploy of an organization at a time.
    pub org: String,
    /// The plan's limit on the bytes of the bundle.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 26_214_400))]
    pub compressed: u64,
    /// The plan's limit on the bytes of the files.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 104_857_600))]
    pub unpacked: u64,
    /// Files and directories.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 20_000))]
    pub entries: u64,
}

/// The state of the deploy of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum GitDeployState {
    /// The push is not deployed: the branch is not the deploy branch.
    None,
    Pending,
    Deployed(GitDeployed),
    /// The push cannot be deployed. Contains the reason for the user.
    Rejected(String),
}

/// A deployed push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GitDeployed {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 7))]
    pub version: i32,
    /// The URL of the project; null if the pusher can no longer deploy.
    pub url: Option<String>,
    /// Hints for the user of the git client.
    pub notes: Vec<String>,
}

/// The reason why the node cannot pack a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, Validate))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GitRejection {
    #[cfg_attr(feature = "openapi", schema(max_length = 2000), validate(length(max = 2000)))]
    pub message: String,
}
