//! Where visitors come from, and how.

use std::net::{IpAddr, Ipv4Addr};

use actix_web::HttpRequest;
use protocol::Platform;
use settings::Networks;
use tokio::sync::watch;

/// What the node is told of the way to it: by its settings which proxies to believe, by the control plane whether one of
/// them ends TLS.
pub struct Origins {
    proxies: Networks,
    platform: watch::Receiver<Option<Platform>>,
}

/// Where one request comes from, as worker code is told.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    pub client: IpAddr,
    pub scheme: &'static str,
}

impl Origins {
    /// Behind these proxies.
    pub const fn new(proxies: Networks, platform: watch::Receiver<Option<Platform>>) -> Self {
        Self { proxies, platform }
    }

    /// Where the request comes from. Nobody but a proxy that is believed is asked.
    pub fn of(&self, request: &HttpRequest) -> Origin {
        let peer = request.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        let forwarded = request.headers().get_all("x-forwarded-for").filter_map(|value| value.to_str().ok());
        let scheme = if self.is_https() { "https" } else { "http" };
        Origin { client: self.proxies.client(peer, forwarded), scheme }
    }

    /// Whether visitors come encrypted.
    pub fn is_https(&self) -> bool {
        self.platform.borrow().as_ref().is_some_and(|platform| platform.https)
    }

    /// Base address of the dashboard, if it is known.
    pub fn dashboard(&self) -> Option<String> {
        self.platform.borrow().as_ref().map(|platform| platform.dashboard_url.clone())
    }
}
