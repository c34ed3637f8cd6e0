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

/// The HTTP Strict Transport Security to set.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewHsts {
    /// Whether this also applies to all subdomains of the hostname, including those that other servers serve. The default
    /// hostname has no subdomains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_sub_domains: Option<bool>,
    /// How long browsers remember this after each response, in seconds, up to two years. 0 makes them forget it. Begin
    /// with a short time: browsers that have seen the header cannot use http until the time is over.
    pub max_age: i32,
    /// Whether browsers may include the hostname in their preload lists. Requires `includeSubDomains` and a `maxAge` of
    /// at least a year (31536000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preload: Option<bool>,
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

    /// Stop sending Strict-Transport-Security, which browsers remember until its time is over
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/hsts`
    pub fn hostnames_hsts_delete(&self, org_slug: &str, project_name: &str, host: &str) -> Call<()> {
        self.operation(
            "hostnames.hsts_delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host, "hsts"],
        )
    }

    /// Set Strict-Transport-Security of a hostname, with which browsers use only https for it
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/hsts`
    pub fn hostnames_hsts_set(&self, org_slug: &str, project_name: &str, host: &str, body: &NewHsts) -> Call<Hostname> {
        self.operation(
            "hostnames.hsts_set",
            Method::PUT,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host, "hsts"],
        )
        .json(body)
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
