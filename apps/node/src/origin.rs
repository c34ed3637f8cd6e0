//! The client address and scheme of requests.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::HttpRequest;
use actix_web::http::header::HOST;
use protocol::Platform;
use settings::Networks;
use tokio::sync::watch;

use crate::connection::is_over_tls;

/// Determines the origin of requests: the settings list the trusted proxies. On a node that does not terminate TLS, the
/// control plane states whether a proxy does.
pub struct Origins {
    proxies: Networks,
    terminates_tls: bool,
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
    pub const fn new(proxies: Networks, terminates_tls: bool, platform: watch::Receiver<Option<Platform>>) -> Self {
        Self { proxies, terminates_tls, platform }
    }

    /// Returns the origin of a request. `X-Forwarded-For` counts only if a trusted proxy sent it.
    pub fn of(&self, request: &HttpRequest) -> Origin {
        let peer = peer(request);
        let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
        Origin { client: self.proxies.client(peer, forwarded), scheme: self.scheme(request) }
    }

    /// Returns the scheme of the visitor's connection.
    pub fn scheme(&self, request: &HttpRequest) -> &'static str {
        if self.is_https(request) { "https" } else { "http" }
    }

    /// Returns whether the visitor connected over https: to the node, or to a proxy that terminates TLS. On a node that
    /// terminates TLS, such a proxy must be trusted and send `X-Forwarded-Proto`.
    pub fn is_https(&self, request: &HttpRequest) -> bool {
        if is_over_tls(request) {
            return true;
        }
        if self.terminates_tls {
            // The trusted proxy appends its own value to those of the visitor.
            let forwarded = request.headers().get_all("x-forwarded-proto").last();
            let last = forwarded.and_then(|values| values.as_bytes().rsplit(|byte| *byte == b',').next());
            let is_https = last.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"));
            return is_https && self.proxies.contains(peer(request).to_canonical());
        }
        self.platform.borrow().as_ref().is_some_and(Platform::is_https)
    }

    /// Returns the address at which visitors reach a hostname, if it is known.
    pub fn site_url(&self, hostname: &str) -> Option<String> {
        self.platform.borrow().as_ref().map(|platform| platform.site_url(hostname))
    }

    /// Returns the base URL of the dashboard, if it is known.
    pub fn dashboard(&self) -> Option<String> {
        self.platform.borrow().as_ref().map(|platform| platform.dashboard_url.clone())
    }
}

/// Returns the address that the connection comes from.
fn peer(request: &HttpRequest) -> IpAddr {
    request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip())
}

/// Returns the requested host, with the port if the request states it. The server rejects a second `Host` header.
pub fn authority(request: &HttpRequest) -> Option<&str> {
    match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => request.headers().get(HOST)?.to_str().ok(),
    }
}
