//! The names that a project is served under.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Serialize;

use super::shared::Hostname;
use crate::{Call, Client, Page};

pub type HostnamePage = Page<Hostname>;

/// The name to claim.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewHostname {
    /// In any spelling; it is kept as lowercase punycode.
    pub name: String,
}

impl Client {
    /// Claim a hostname; it is served once its ownership is proved
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_add(&self, org_slug: &str, project_name: &str, body: &NewHostname) -> Call<Hostname> {
        self.operation("hostnames.add", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
            .once()
            .json(body)
    }

    /// Give a custom hostname up
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}`
    pub fn hostnames_delete(&self, org_slug: &str, project_name: &str, host: &str) -> Call<()> {
        self.operation(
            "hostnames.delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host],
        )
    }

    /// The hostnames of a project, the default one first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_list(&self, org_slug: &str, project_name: &str) -> Call<HostnamePage> {
        self.operation("hostnames.list", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
    }

    /// Look for the proof of a hostname now
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify`
    pub fn hostnames_verify(&self, org_slug: &str, project_name: &str, host: &str) -> Call<Hostname> {
        self.operation(
            "hostnames.verify",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host, "verify"],
        )
        .once()
    }
}
