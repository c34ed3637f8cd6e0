//! Networks of proxies, and who came through them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// Networks of proxies whose `X-Forwarded-For` is believed: CIDRs, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Where a request came from: the peer, or whom the proxies name. Each proxy appends who spoke to it, so the entries
    /// are believed from the last one backwards, as long as proxies of these networks wrote them and they can be read.
    pub fn client<'a>(&self, peer: IpAddr, forwarded_for: impl Iterator<Item = &'a str>) -> IpAddr {
        let hops: Vec<&str> = forwarded_for.flat_map(|value| value.split(',')).collect();
        let mut nearest = peer.to_canonical();
        for hop in hops.into_iter().rev() {
            let Some(before) = hop_address(hop.trim()).filter(|_| self.contains(nearest)) else { break };
            nearest = before.to_canonical();
        }
        nearest
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// What an address is counted as: an IPv6 client has a /64 at least, and may pick any address of it.
#[must_use]
pub fn counted(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// An address, with or without a port.
fn hop_address(hop: &str) -> Option<IpAddr> {
    let bare = hop.parse().ok();
    bare.or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

impl FromStr for Networks {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|network| network.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}
