//! The service about itself.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use crate::{Call, Client};

/// What this deployment is called and where its parts are: the answer of `GET /v1/config`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    pub dashboard_url: String,
    /// What the CNAME of a custom hostname points at.
    pub fallback_origin: String,
    pub git_url: Option<String>,
    pub mail_domain: Option<String>,
    pub name: String,
    pub nameservers: Vec<String>,
    /// Default hostnames lie under it.
    pub platform_domain: String,
    /// Base address of this API.
    pub public_url: String,
    /// The address of a deployed project, with `{hostname}` in place of its name.
    pub site_url: String,
    pub ssh_host: Option<String>,
    pub version: String,
}

/// The service is well.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub status: String,
}

impl Client {
    /// What this deployment is called and where its parts are
    ///
    /// `GET /v1/config`
    pub fn service_config(&self) -> Call<Config> {
        self.operation("service.config", Method::GET, &["v1", "config"])
    }

    /// Whether the process is up
    ///
    /// `GET /healthz`
    pub fn service_healthz(&self) -> Call<Health> {
        self.operation("service.healthz", Method::GET, &["healthz"])
    }

    /// Whether requests can be served: the database answers and is migrated
    ///
    /// `GET /readyz`
    pub fn service_readyz(&self) -> Call<Health> {
        self.operation("service.readyz", Method::GET, &["readyz"])
    }
}
