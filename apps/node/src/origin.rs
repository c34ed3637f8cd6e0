//! The client address and scheme of requests.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::HttpRequest;
use actix_web::http::header::HOST;
use protocol::Platform;
use settings::Networks;
use tokio::sync::watch;

/// Determines the origin of requests: the settings list the trusted proxies, and the control plane states whether a
/// proxy terminates TLS.
pub struct Origins {
    proxies: Networks,
    platform: watch::Receiver<Option<Platform>>,
}

/// The client address and scheme of a request, as passed to worker code.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    pub client: IpAddr,
    pub scheme: &'static str,
}

impl Origins {
    /// Creates the origins of a node that trusts these proxies.
    pub const fn new(proxies: Networks, platform: watch::Receiver<Option<Platform>>) -> Self {
        Self { proxies, platform }
    }

    /// Returns the origin of a request. `X-Forwarded-For` counts only if a trusted proxy sent it.
    pub fn of(&self, request: &HttpRequest) -> Origin {
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
        Origin { client: self.proxies.client(peer, forwarded), scheme: self.scheme() }
    }

    /// Returns the scheme of the visitors' connections.
    pub fn scheme(&self) -> &'static str {
        if self.is_https() { "https" } else { "http" }
    }

    /// Returns whether visitors connect over HTTPS.
    pub fn is_https(&self) -> bool {
        self.platform.borrow().as_ref().is_some_and(|platform| platform.https)
    }

    /// Returns the base URL of the dashboard, if it is known.
    pub fn dashboard(&self) -> Option<String> {
        self.platform.borrow().as_ref().map(|platform| platform.dashboard_url.clone())
    }
}

/// Returns the requested host, with the port if the request states it. The server rejects a second `Host` header.
pub fn authority(request: &HttpRequest) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST)?.to_str().ok(),
    }
}
