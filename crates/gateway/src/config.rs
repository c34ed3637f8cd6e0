//! The configuration of the gateway.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use settings::Networks;

/// The name and addresses of this installation: the response of `GET /v1/config`.
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
    /// The base URL of this API.
    pub public_url: String,
    pub dashboard_url: String,
    /// The parent domain of default hostnames.
    pub platform_domain: String,
    #[schema(required)]
    pub mail_domain: Option<String>,
    pub nameservers: Vec<String>,
    /// The URL of a deployed project, with `{hostname}` as a placeholder.
    pub site_url: String,
    /// The CNAME target of custom hostnames.
    pub fallback_origin: String,
    #[schema(required)]
    pub git_url: Option<String>,
    #[schema(required)]
    pub ssh_host: Option<String>,
    pub version: String,
}

/// The sign-in methods that an installation offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignInMethods {
    /// The development login.
    pub dev: bool,
    /// The code host.
    pub code_host: bool,
}

/// The configuration of the gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The public description of the installation.
    pub site: Site,
    /// The enabled sign-in methods.
    pub sign_ins: SignInMethods,
    /// The proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Networks,
    /// The rate limits of each caller.
    pub rate_limits: RateLimits,
    /// The limit of concurrent requests. Requests above it receive 503.
    pub max_concurrent_requests: usize,
    /// The waits that limit the load, which only tests change.
    pub max_waits: MaxWaits,
}

/// The waits that limit the load.
#[derive(Debug, Clone, Copy)]
pub struct MaxWaits {
    /// The longest wait for a write permit.
    pub write_permit: Duration,
    /// If every request waits longer for a connection, the limit of concurrent requests falls.
    pub connection: Duration,
}

impl Default for MaxWaits {
    /// The sum of the waits for a write permit, a connection and a lock is less than three seconds.
    fn default() -> Self {
        Self { write_permit: Duration::from_millis(750), connection: Duration::from_millis(10) }
    }
}

/// Requests per minute (contract section 1, "Plan limits").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// The limit of an address on the sign-in endpoints. Previews of invitations have a separate limit of the same
    /// size.
    pub sign_in: NonZeroU32,
    /// The limit of a credential on all other endpoints. Requests without a valid credential count against their
    /// address.
    pub credential: NonZeroU32,
    /// The limit of a user over all credentials. `None` means twice the limit of a credential.
    pub user: Option<NonZeroU32>,
    /// The limit of an address on each of the endpoints below `/oauth`.
    pub oauth_address: NonZeroU32,
    /// The limit of a confidential connected app, and of an address for a public one, on each of the endpoints below
    /// `/oauth`.
    pub oauth_client: NonZeroU32,
    /// The limit of a user on requests of git clients.
    pub git: NonZeroU32,
}

impl RateLimits {
    /// Returns the limit of a user over all credentials.
    #[must_use]
    pub fn user(&self) -> NonZeroU32 {
        self.user.unwrap_or_else(|| self.credential.saturating_add(self.credential.get()))
    }
}

impl Default for RateLimits {
    fn default() -> Self {
        let rate = |per_minute| NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN);
        Self {
            sign_in: rate(30),
            credential: rate(600),
            user: None,
            oauth_address: rate(120),
            oauth_client: rate(60),
            git: rate(3000),
        }
    }
}

impl Config {
    /// Returns whether clients reach this API over HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.site.public_url.starts_with("https:")
    }

    /// Returns the origin of the dashboard, as browsers send it in `Origin`.
    pub(crate) fn dashboard_origin(&self) -> String {
        let url = &self.site.dashboard_url;
        let authority = url.find("://").map_or(0, |at| at + 3);
        let end = url.get(authority..).and_then(|rest| rest.find('/')).map_or(url.len(), |at| authority + at);
        url.get(..end).unwrap_or(url).to_owned()
    }
}

/// Returns whether a path allows every origin. The endpoints of OAuth do, because apps that run in a browser are clients
/// too (contract section 3).
pub(crate) fn allows_every_origin(path: &str) -> bool {
    path.starts_with("/oauth/") || path.starts_with("/.well-known/")
}
