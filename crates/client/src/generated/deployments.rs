//! What a project serves, and served before.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Serialize;

use super::shared::Deployment;
use crate::{Call, Client, Page, Paging, Upload};

pub type DeploymentPage = Page<Deployment>;

/// The deployment to go back to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    pub version: i32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeploymentsCreateHeaders {
    /// The commit that the bundle was made from, in hexadecimal.
    pub x_svc_git_commit: Option<String>,
    /// The first line of its message, percent-encoded.
    pub x_svc_git_message: Option<String>,
    /// The branch it was made on, percent-encoded.
    pub x_svc_git_branch: Option<String>,
    /// `true` when files differed from the commit, else `false`.
    pub x_svc_git_dirty: Option<String>,
}

impl Client {
    /// Upload a bundle; it is live at once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/deployments`
    pub fn deployments_create(
        &self,
        org_slug: &str,
        project_name: &str,
        header: &DeploymentsCreateHeaders,
        body: Upload,
    ) -> Call<Deployment> {
        self.operation(
            "deployments.create",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments"],
        )
        .once()
        .header("X-Svc-Git-Commit", header.x_svc_git_commit.as_ref())
        .header("X-Svc-Git-Message", header.x_svc_git_message.as_ref())
        .header("X-Svc-Git-Branch", header.x_svc_git_branch.as_ref())
        .header("X-Svc-Git-Dirty", header.x_svc_git_dirty.as_ref())
        .upload("application/gzip", body)
    }

    /// One deployment, and how it fares at its node
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/deployments/{version}`
    pub fn deployments_get(&self, org_slug: &str, project_name: &str, version: &str) -> Call<Deployment> {
        self.operation(
            "deployments.get",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments", version],
        )
    }

    /// The deployments, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/deployments`
    pub fn deployments_list(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<DeploymentPage> {
        self.operation(
            "deployments.list",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments"],
        )
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }

    /// Make an older deployment live again
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/rollback`
    pub fn deployments_rollback(&self, org_slug: &str, project_name: &str, body: &Rollback) -> Call<Deployment> {
        self.operation(
            "deployments.rollback",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "rollback"],
        )
        .once()
        .json(body)
    }
}
