//! The addresses that workers may connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use settings::Networks;

/// Networks whose addresses are not public: those of IANA's special-purpose registries (RFC 6890), multicast, and the
/// address at which Azure serves metadata to its machines.
const SPECIAL_V4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
    (Ipv4Addr::BROADCAST, 32),
];
/// The only range of public IPv6 addresses (RFC 4291, 2.4), followed by its special-purpose networks: protocol
/// assignments with Teredo, documentation, 6to4.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const SPECIAL_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];
/// The prefix of NAT64 (RFC 6052), followed by an IPv4 address.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Decides which addresses workers may connect to.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Networks in addition to the public addresses.
    pub allow: Networks,
    /// Networks that are denied in any case.
    pub deny: Networks,
}

impl Policy {
    /// Returns whether workers may connect to the address. They may if it is public and not the machine's own, or if a
    /// setting permits it.
    pub fn permits(&self, address: IpAddr) -> bool {
        let to = find_destination(address);
        let is_denied = self.deny.contains(address) || self.deny.contains(to);
        !is_denied && (self.allow.contains(to) || is_public(to) && !is_own(to))
    }
}

/// Returns the address at which a connection arrives: that of IPv4 for an IPv6 address that contains one, because it is
/// mapped to it or because NAT64 translates it.
fn find_destination(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if is_in(v6, NAT64) => {
            let [.., a, b, c, d] = v6.octets();
            Ipv4Addr::new(a, b, c, d).into()
        }
        address => address,
    }
}

/// Returns whether the address is public.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !SPECIAL_V4
            .iter()
            .any(|&(network, prefix)| (u64::from(v4.to_bits() ^ network.to_bits())) >> (Ipv4Addr::BITS - prefix) == 0),
        IpAddr::V6(v6) => is_in(v6, PUBLIC_V6) && !SPECIAL_V6.iter().any(|&network| is_in(v6, network)),
    }
}

fn is_in(address: Ipv6Addr, (network, prefix): (Ipv6Addr, u32)) -> bool {
    (address.to_bits() ^ network.to_bits()) >> (Ipv6Addr::BITS - prefix) == 0
}

/// Returns whether the machine itself has the address. If it has, the kernel chooses the same address as the source of
/// a connection to it. No packet is sent.
fn is_own(address: IpAddr) -> bool {
    let unspecified = match address {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // The port is never used. Without a route, a connection to the address fails too.
    let source = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(policy: &Policy, address: &str) -> bool {
        policy.permits(address.parse().unwrap())
    }

    /// Returns an IPv4 address, and the IPv6 addresses that lead to it.
    fn notations(v4: &str) -> [String; 3] {
        [v4.to_owned(), format!("::ffff:{v4}"), format!("64:ff9b::{v4}")]
    }

    #[test]
    fn only_public_addresses_are_permitted() {
        let policy = Policy::default();
        for denied in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.100.100.200",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::808:808",
            "100::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!permits(&policy, denied), "{denied}");
        }
        for permitted in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "168.63.129.17",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(permits(&policy, permitted), "{permitted}");
        }
    }

    #[test]
    fn settings_have_precedence_and_apply_to_all_notations() {
        let [allow, deny] = ["127.0.0.0/8, 10.1.0.0/16", "8.8.8.0/24, 127.0.0.53/32"].map(|it| it.parse().unwrap());
        let policy = Policy { allow, deny };
        for permitted in ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1", "10.1.2.3", "1.1.1.1"] {
            assert!(permits(&policy, permitted), "{permitted}");
        }
        for denied in
            ["127.0.0.53", "8.8.8.8"].into_iter().flat_map(notations).chain(["10.2.0.1", "::1"].map(str::to_owned))
        {
            assert!(!permits(&policy, &denied), "{denied}");
        }
    }

    #[test]
    fn addresses_of_the_machine_are_recognized() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(1, 1, 1, 1).into()));
        // This is the address of the interface that leads to the internet, if there is one.
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        if socket.connect("1.1.1.1:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_own(own));
            for denied in notations(&own.to_string()) {
                assert!(!permits(&Policy::default(), &denied), "{denied}");
            }
        }
    }
}
