//! What the gateway is told at start.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use settings::Networks;

/// What this deployment is called and where its parts are: the answer of `GET /v1/config`.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Config)]
#[schema(example = json!({
    "name": "svc",
    "publicUrl": "https://api.svc.example",
    "dashboardUrl": "https://dashboard.svc.example",
    "platformDomain": "apps.svc.example",
    "nameservers": ["ns1.svc.example", "ns2.svc.example"],
    "siteUrl": "https://{hostname}",
    "fallbackOrigin": "origin.svc.example",
    "version": "0.1.0",
}))]
pub struct Site {
    pub name: String,
    /// Base address of this API.
    pub public_url: String,
    pub dashboard_url: String,
    /// Default hostnames lie under it.
    pub platform_domain: String,
    #[schema(required)]
    pub mail_domain: Option<String>,
    pub nameservers: Vec<String>,
    /// The address of a deployed project, with `{hostname}` in place of its name.
    pub site_url: String,
    /// What the CNAME of a custom hostname points at.
    pub fallback_origin: String,
    #[schema(required)]
    pub git_url: Option<String>,
    #[schema(required)]
    pub ssh_host: Option<String>,
    pub version: String,
}

/// The ways to sign in that a deployment offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignIns {
    /// The development login.
    pub dev: bool,
    /// The code host.
    pub code_host: bool,
}

/// How the gateway behaves.
#[derive(Debug, Clone)]
pub struct Config {
    /// What it tells about the deployment.
    pub site: Site,
    /// The ways to sign in.
    pub sign_ins: SignIns,
    /// Proxies whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Networks,
    /// How often one caller may come.
    pub rate_limits: RateLimits,
    /// Requests worked on at once; more are told to come back.
    pub in_flight: usize,
}

/// Requests per minute (contract section 1, "Plan limits").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// Of each address, on the endpoints that sign in.
    pub sign_in: NonZeroU32,
    /// Of each credential, on everything else; without one, of each address.
    pub credential: NonZeroU32,
}

impl Default for RateLimits {
    fn default() -> Self {
        let rate = |per_minute| NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        Self { sign_in: rate(30), credential: rate(600) }
    }
}

impl Config {
    /// Whether clients reach this API encrypted.
    pub(crate) fn is_https(&self) -> bool {
        self.site.public_url.starts_with("https:")
    }

    /// The address of the dashboard as browsers name it in `Origin`.
    pub(crate) fn dashboard_origin(&self) -> String {
        let url = &self.site.dashboard_url;
        let authority = url.find("://").map_or(0, |at| at + 3);
        let end = url.get(authority..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| authority + at);
        url.get(..end).unwrap_or(url).to_owned()
    }
}
