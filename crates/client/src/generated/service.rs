//! Configuration, documentation and health of the service.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use crate::{Call, Client};

/// The name and addresses of this installation: the response of `GET /v1/config`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    pub dashboard_url: String,
    /// The CNAME target of custom hostnames.
    pub fallback_origin: String,
    pub git_url: Option<String>,
    pub mail_domain: Option<String>,
    pub name: String,
    pub nameservers: Vec<String>,
    /// The parent domain of default hostnames.
    pub platform_domain: String,
    /// The base URL of this API.
    pub public_url: String,
    /// The URL of a deployed project, with `{hostname}` as a placeholder.
    pub site_url: String,
    pub ssh_host: Option<String>,
    pub version: String,
}

/// The result of a successful health check.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub status: String,
}

impl Client {
    /// Get the name and addresses of this installation
    ///
    /// `GET /v1/config`
    pub fn service_config(&self) -> Call<Config> {
        self.operation("service.config", Method::GET, &["v1", "config"])
    }

    /// Check that the process is alive
    ///
    /// `GET /healthz`
    pub fn service_healthz(&self) -> Call<Health> {
        self.operation("service.healthz", Method::GET, &["healthz"])
    }

    /// Check that the database is reachable and migrated
    ///
    /// `GET /readyz`
    pub fn service_readyz(&self) -> Call<Health> {
        self.operation("service.readyz", Method::GET, &["readyz"])
    }
}
