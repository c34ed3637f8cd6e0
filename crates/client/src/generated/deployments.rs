//! Deployments of a project.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Serialize;

use super::shared::Deployment;
use crate::{Call, Client, Page, Paging, Upload};

pub type DeploymentPage = Page<Deployment>;

/// A rollback to an earlier deployment.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rollback {
    pub version: i32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeploymentsCreateHeaders {
    /// The commit that the bundle was built from, in hexadecimal.
    pub x_svc_git_commit: Option<String>,
    /// The first line of the commit's message, percent-encoded.
    pub x_svc_git_message: Option<String>,
    /// The branch that the bundle was built on, percent-encoded.
    pub x_svc_git_branch: Option<String>,
    /// `true` if files differed from the commit, otherwise `false`.
    pub x_svc_git_dirty: Option<String>,
}

impl Client {
    /// Upload a bundle, and make it live
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
        .idempotent()
        .header("X-Svc-Git-Commit", header.x_svc_git_commit.as_ref())
        .header("X-Svc-Git-Message", header.x_svc_git_message.as_ref())
        .header("X-Svc-Git-Branch", header.x_svc_git_branch.as_ref())
        .header("X-Svc-Git-Dirty", header.x_svc_git_dirty.as_ref())
        .upload("application/gzip", body)
    }

    /// Get a deployment, with its state at the home node
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/deployments/{version}`
    pub fn deployments_get(&self, org_slug: &str, project_name: &str, version: &str) -> Call<Deployment> {
        self.operation(
            "deployments.get",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments", version],
        )
    }

    /// List deployments, newest first
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
        .idempotent()
        .json(body)
    }
}
