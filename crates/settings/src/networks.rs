//! Networks of trusted proxies, and the client addresses behind them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// A list of networks, for example of proxies whose `X-Forwarded-For` is trusted: CIDRs, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Returns the client address of a request. Each proxy appends the address of its peer. Therefore the entries are
    /// read from the last one backwards, as long as an entry parses and a proxy in these networks wrote it.
    pub fn client<'a>(&self, peer: IpAddr, forwarded_for: impl Iterator<Item = &'a str>) -> IpAddr {
        let hops: Vec<&str> = forwarded_for.flat_map(|value| value.split(',')).collect();
        let mut nearest = peer.to_canonical();
        for hop in hops.into_iter().rev() {
            let Some(before) = parse_hop(hop.trim()).filter(|_| self.contains(nearest)) else { break };
            nearest = before.to_canonical();
        }
        nearest
    }

    /// Returns whether one of the networks contains the address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Returns the address under which a client is counted: the address itself, or the /64 network of an IPv6 address,
/// because an IPv6 client can use every address of a /64.
#[must_use]
pub fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// Returns whether the host of a URL is this machine: `localhost` or a name below it (RFC 6761 section 6.3), or a
/// loopback address. An IPv6 address is in brackets, as in the URL.
#[must_use]
pub fn is_loopback_host(host: &str) -> bool {
    let v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address: Option<IpAddr> = v6.unwrap_or(host).parse().ok();
    address.is_some_and(|address| address.is_loopback()) || host == "localhost" || host.ends_with(".localhost")
}

/// Parses an address with or without a port.
fn parse_hop(hop: &str) -> Option<IpAddr> {
    let bare = hop.parse().ok();
    bare.or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

impl FromStr for Networks {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}
