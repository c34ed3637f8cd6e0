//! Hostnames of a project.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Serialize;

use super::shared::Hostname;
use crate::{Call, Client, Page};

pub type HostnamePage = Page<Hostname>;

/// A hostname to claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewHostname {
    /// The hostname. It is stored as lowercase punycode.
    pub name: String,
}

impl Client {
    /// Claim a hostname, which is served after its ownership is verified
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_add(&self, org_slug: &str, project_name: &str, body: &NewHostname) -> Call<Hostname> {
        self.operation("hostnames.add", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
            .idempotent()
            .json(body)
    }

    /// Release a custom hostname
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}`
    pub fn hostnames_delete(&self, org_slug: &str, project_name: &str, host: &str) -> Call<()> {
        self.operation(
            "hostnames.delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host],
        )
    }

    /// List the hostnames of a project, the default one first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_list(&self, org_slug: &str, project_name: &str) -> Call<HostnamePage> {
        self.operation("hostnames.list", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
    }

    /// Verify the ownership of a hostname now
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify`
    pub fn hostnames_verify(&self, org_slug: &str, project_name: &str, host: &str) -> Call<Hostname> {
        self.operation(
            "hostnames.verify",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host, "verify"],
        )
        .idempotent()
    }
}
