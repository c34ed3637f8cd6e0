//! Who may see a project's deployments.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{AccessMode, Time, Token};
use crate::{Call, Client, Secret};

/// Where to move the browser.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessAuthorize {
    /// Holds a code: whoever has it, gets in.
    pub redirect: Secret,
}

/// A fresh bypass key: the one answer that holds it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessBypass {
    pub created_at: Time,
    /// What to send as `Svc-Access-Bypass`.
    pub secret: Token,
}

/// The policy that is to hold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessChange {
    pub mode: AccessMode,
    /// Replaces the password; left out, the one there is stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// Who may see a project, without any secret.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AccessPolicy {
    /// Whether there is a key that passes by the policy.
    pub has_bypass: bool,
    /// Whether a password was ever set; it is kept while another mode holds.
    pub has_password: bool,
    pub mode: AccessMode,
    /// The project's creation until something was set.
    pub updated_at: Time,
}

/// The middle of the round trip that lets a member in.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorize {
    /// The path it goes back to.
    pub next: String,
    /// The hostname that the browser comes from.
    pub to: String,
}

impl Client {
    /// Let the caller in at a hostname: where to move the browser
    ///
    /// `POST /v1/access/authorize`
    pub fn access_authorize(&self, body: &Authorize) -> Call<AccessAuthorize> {
        self.operation("access.authorize", Method::POST, &["v1", "access", "authorize"]).once().json(body)
    }

    /// Make a key that passes by the policy; it is shown this once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_new(&self, org_slug: &str, project_name: &str) -> Call<AccessBypass> {
        self.operation(
            "access.bypass_new",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
        .once()
    }

    /// Remove the key that passes by the policy
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation(
            "access.bypass_revoke",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
    }

    /// Who may see the project's deployments
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_get(&self, org_slug: &str, project_name: &str) -> Call<AccessPolicy> {
        self.operation("access.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "access"])
    }

    /// Set who may see the project's deployments
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_set(&self, org_slug: &str, project_name: &str, body: &AccessChange) -> Call<AccessPolicy> {
        self.operation("access.set", Method::PUT, &["v1", "orgs", org_slug, "projects", project_name, "access"])
            .json(body)
    }
}
