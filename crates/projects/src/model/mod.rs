//! The types as the wire shows them (contract section 5).

mod access;
mod hostname;
mod overview;

pub use access::*;
pub use hostname::*;
pub use overview::*;

use kernel::{DeploymentId, Digest, ProjectId, ResourceSet, Time, UserId};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::text! {
    /// A project's name: a DNS label, unique within its organization.
    pub struct ProjectName matches "^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"
        means "1 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit"
        example "site"
}

kernel::words! {
    /// What was last reported of a deployment by the node that serves the project.
    pub enum DeploymentStatus {
        /// Nothing yet, since it went live.
        Pending = "pending",
        /// Visitors are shown it.
        Serving = "serving",
        /// Its worker was ended or died. The next request starts it again.
        Crashed = "crashed",
        /// It could not be brought up. If another one was served before, that one still is.
        Failed = "failed",
        /// Another one is served in its place.
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
    /// The hostname that came with it.
    pub hostname: String,
    pub created_at: Time,
}

/// One project, as far as this context knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectDetail {
    pub project: Project,
    /// None before the first deployment.
    pub live: Option<Deployment>,
    pub hostnames: Vec<Hostname>,
    pub access: Access,
    /// None before the first deployment.
    pub placement: Option<Placement>,
}

/// Where a project is served from, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "state": "active", "epoch": 1 })))]
pub struct Placement {
    pub state: String,
    /// Raised whenever the project's data moves or is restored.
    pub epoch: i64,
}

/// A version of a project. Immutable, and never deleted.
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
    /// 1, 2, 3 … without gaps within the project.
    pub version: i32,
    /// Of the upload.
    pub digest: Digest,
    /// Bytes of the upload.
    pub size_bytes: i64,
    /// Whether it is the one to be served; `status` tells whether it is.
    pub live: bool,
    pub status: DeploymentStatus,
    /// Why it crashed or failed, in words for who deployed it.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub status_message: Option<String>,
    /// Where the bundle was made from; for display only.
    pub git: Git,
    /// What the manifest declares.
    pub declares: ResourceSet,
    pub has_worker: bool,
    pub asset_count: i32,
    pub created_by: Author,
    pub created_at: Time,
}

/// Who uploaded a deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "subject": "ada" })))]
pub struct Author {
    pub user_id: UserId,
    pub subject: String,
}

/// Where a bundle was made from, as the uploader says. Never used to decide anything.
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
    /// 7 to 64 hex digits.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub commit: Option<String>,
    /// The first line of the commit's message, at most 200 characters.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub message: Option<String>,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub branch: Option<String>,
    /// Whether there were changes that no commit holds.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub dirty: Option<bool>,
}

/// The project to create.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProject {
    pub name: ProjectName,
}

/// What is to change of a project.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectChange {
    /// The default hostname follows it.
    pub name: ProjectName,
}

/// The deletion of a project, said twice.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "confirm": "site" })))]
pub struct ProjectDeletion {
    /// The project's name.
    #[validate(length(max = 255))]
    #[cfg_attr(feature = "openapi", schema(max_length = 255))]
    pub confirm: String,
}

/// The deployment to go back to.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "version": 1 })))]
pub struct Rollback {
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: i32,
}

impl Git {
    /// The provenance that the upload's headers state (specification, "Projects and deployments", rule 3), percent
    /// encoding undone by the caller. What is malformed is left out; the deployment stands.
    #[must_use]
    pub fn stated(commit: Option<&str>, message: Option<&str>, branch: Option<&str>, dirty: Option<&str>) -> Self {
        let is_commit = |text: &&str| (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit());
        let printable = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
        let first_line = |text: &str| text.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
        Self {
            commit: commit.filter(is_commit).map(str::to_ascii_lowercase),
            message: message.map(first_line).filter(|line| printable(line)),
            branch: branch.filter(|name| printable(name) && name.len() <= 255).map(str::to_owned),
            dirty: dirty.and_then(|word| word.parse().ok()),
        }
    }
}
