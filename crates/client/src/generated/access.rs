//! Access to a project's deployments.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{AccessMode, Time, Token};
use crate::{Call, Client, Secret};

/// The URL to redirect the browser to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessAuthorize {
    /// The URL. It contains a one-time code that grants access.
    pub redirect: Secret,
}

/// A new bypass key. Only this response contains it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessBypass {
    pub created_at: Time,
    /// The value for the header `Svc-Access-Bypass`.
    pub secret: Token,
}

/// A change of the access policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessChange {
    pub mode: AccessMode,
    /// The new password. If it is omitted, the current password is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// The access policy of a project, without secrets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicy {
    /// Whether a bypass key exists.
    pub has_bypass: bool,
    /// Whether a password is set. The password is kept when the mode changes.
    pub has_password: bool,
    pub mode: AccessMode,
    /// The time of the last change of the policy. Initially the creation time of the project.
    pub updated_at: Time,
}

/// A request for access to a protected project, as a signed-in member.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorize {
    /// The path on that hostname to return to.
    pub next: String,
    /// The hostname of the project.
    pub to: String,
}

impl Client {
    /// Authorize the caller at a hostname, and return the URL for the browser
    ///
    /// `POST /v1/access/authorize`
    pub fn access_authorize(&self, body: &Authorize) -> Call<AccessAuthorize> {
        self.operation("access.authorize", Method::POST, &["v1", "access", "authorize"]).idempotent().json(body)
    }

    /// Create a key that bypasses the access policy, shown only once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_new(&self, org_slug: &str, project_name: &str) -> Call<AccessBypass> {
        self.operation(
            "access.bypass_new",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
        .idempotent()
    }

    /// Revoke the key that bypasses the access policy
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation(
            "access.bypass_revoke",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
    }

    /// Get the access policy of a project
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_get(&self, org_slug: &str, project_name: &str) -> Call<AccessPolicy> {
        self.operation("access.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "access"])
    }

    /// Set the access policy of a project
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_set(&self, org_slug: &str, project_name: &str, body: &AccessChange) -> Call<AccessPolicy> {
        self.operation("access.set", Method::PUT, &["v1", "orgs", org_slug, "projects", project_name, "access"])
            .json(body)
    }
}
