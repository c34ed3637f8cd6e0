//! Object storage of a project, which worker code uses as `env.storage`.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use super::shared::Time;
use crate::{Call, Client};

/// an id that starts with sto_
pub type StorageId = String;

/// The object storage of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageStatus {
    /// Whether storage is granted.
    pub enabled: bool,
    /// Identifies the project's objects. It never changes, and stays after a revocation. Null before the first grant.
    pub prefix: Option<StorageId>,
    /// The limit of the plan on the sum of the sizes of all objects, in bytes.
    pub quota_bytes: i64,
    /// The time at which the node last reported the usage. Null before its first report.
    pub reported_at: Option<Time>,
    /// The sum of the sizes of all objects, in bytes, at the last report of the node.
    pub used_bytes: i64,
}

impl Client {
    /// Get the object storage of a project, with its usage
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/storage`
    pub fn storage_get(&self, org_slug: &str, project_name: &str) -> Call<StorageStatus> {
        self.operation("storage.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "storage"])
    }

    /// Enable the object storage of a project, or return the existing storage
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/storage`
    pub fn storage_grant(&self, org_slug: &str, project_name: &str) -> Call<StorageStatus> {
        self.operation("storage.grant", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "storage"])
            .idempotent()
    }

    /// Disable the object storage of a project, and keep its objects
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/storage`
    pub fn storage_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation("storage.revoke", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name, "storage"])
    }
}
