//! The types of the API (contract section 5).

mod access;
mod hostname;
mod hsts;
mod overview;

pub use access::*;
pub use hostname::*;
pub use hsts::*;
pub use overview::*;

use kernel::{DeploymentId, Digest, InvalidText, ProjectId, ResourceSet, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// A project's name: a DNS label, unique within its organization.
    pub struct ProjectName matches "^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"
        means "1 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit"
        format "project-name" checked by check_prefix
        example "site"
}

/// Rejects a name that begins like an internationalized label (RFC 5890 section 2.3.2.1). The default hostname begins
/// with the name, and most such labels are not valid punycode.
fn check_prefix(name: &str) -> Result<(), InvalidText> {
    match name.starts_with("xn--") {
        true => Err(InvalidText::Forbidden("begin with xn--, as internationalized names do")),
        false => Ok(()),
    }
}

kernel::words! {
    /// The status that the project's node last reported for a deployment.
    pub enum DeploymentStatus {
        /// The node has not reported since the deployment went live.
        Pending = "pending",
        /// Visitors see the deployment.
        Serving = "serving",
        /// The worker exited or was stopped. The next request restarts it.
        Crashed = "crashed",
        /// The deployment failed to start. The previous deployment is still served, if there is one.
        Failed = "failed",
        /// Another deployment is served instead.
        Retired = "retired",
    } example Serving
}

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "org": "acme", "hostname": "site-acme.apps.svc.example" })))]
pub struct Project {
    pub id: ProjectId,
    pub name: ProjectName,
    /// The organization's slug.
    pub org: String,
    /// The default hostname.
    pub hostname: String,
    pub created_at: Time,
}

/// The details of a project that this context owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectDetail {
    pub project: Project,
    /// The live deployment. Null before the first deployment.
    pub live: Option<Deployment>,
    pub hostnames: Vec<Hostname>,
    pub access: Access,
    /// The placement. `None` until the first deployment, secret or resource that a node provides.
    pub placement: Option<Placement>,
}

impl ProjectDetail {
    /// Adds the records that prove ownership to the pending hostnames.
    #[must_use]
    pub fn with_verify_records(self, fallback_origin: &str) -> Self {
        let hostnames = self.hostnames.into_iter().map(|hostname| hostname.with_verify_records(fallback_origin));
        Self { hostnames: hostnames.collect(), ..self }
    }
}

/// The placement of a project on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "state": "active", "epoch": 1 })))]
pub struct Placement {
    pub state: String,
    /// Increases whenever the project's data moves or is restored.
    pub epoch: i64,
}

/// A version of a project. Its bundle never changes, and it is never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "version": 1,
        "sizeBytes": 48213,
        "live": true,
        "hasWorker": false,
        "assetCount": 12,
    }))
)]
pub struct Deployment {
    pub id: DeploymentId,
    /// The number of the deployment within the project: 1, 2, 3 and so on, without gaps.
    pub version: i32,
    /// The digest of the upload.
    pub digest: Digest,
    /// The size of the upload, in bytes.
    pub size_bytes: i64,
    /// Whether this is the desired deployment of the project; `status` is the observed state.
    pub live: bool,
    pub status: DeploymentStatus,
    /// The cause of a crash or failure, for the user who deployed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub status_message: Option<String>,
    /// The source of the bundle. For display only.
    pub git: Git,
    /// The resources that the manifest declares.
    pub declares: ResourceSet,
    pub has_worker: bool,
    pub asset_count: i32,
    pub created_by: Author,
    pub created_at: Time,
}

/// The user who uploaded a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "subject": "ada" })))]
pub struct Author {
    pub user_id: UserId,
    pub subject: String,
}

/// The source of a bundle, as stated by the uploader. For display only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "commit": "3f2a9c1",
        "message": "Publish the site",
        "branch": "main",
        "dirty": false,
    }))
)]
pub struct Git {
    /// The id of the commit: 7 to 64 hex digits.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub commit: Option<String>,
    /// The first line of the commit's message, at most 200 characters.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub message: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub branch: Option<String>,
    /// Whether there were uncommitted changes.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub dirty: Option<bool>,
}

/// A project to create.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProject {
    pub name: ProjectName,
}

/// A change of a project.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectChange {
    /// The new name. The default hostname changes with the name.
    pub name: ProjectName,
}

/// A confirmed deletion of a project.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "confirm": "site" })))]
pub struct ProjectDeletion {
    /// The project's name. Any other text is `confirm_mismatch`, whatever its length.
    pub confirm: String,
}

/// A rollback to an earlier deployment.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "version": 1 })))]
pub struct Rollback {
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: i32,
}

impl Git {
    /// Reads the source from the upload's headers (specification, "Projects and deployments", rule 3), which the caller
    /// has percent-decoded. Ignores malformed values, so that the deployment still succeeds. Keeps the first line of the
    /// message, with spaces instead of control characters.
    #[must_use]
    pub fn from_headers(
        commit: Option<&str>,
        message: Option<&str>,
        branch: Option<&str>,
        dirty: Option<&str>,
    ) -> Self {
        let is_commit = |text: &&str| (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        let printable = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        let first_line = |text: &str| {
            let line = text.lines().next().unwrap_or_default().chars().take(200);
            let line: String = line.map(|c| if c.is_control() { ' ' } else { c }).collect();
            line.trim().to_owned()
        };
        Self {
            commit: commit.filter(is_commit).map(str::to_ascii_lowercase),
            message: message.map(first_line).filter(|line| !line.is_empty()),
            branch: branch.filter(|name| printable(name) && name.len() <= 255).map(str::to_owned),
            dirty: dirty.and_then(|word| word.parse().ok()),
        }
    }
}
