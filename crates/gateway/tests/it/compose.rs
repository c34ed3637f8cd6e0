//! `deploy/compose.yaml` reserves the fixed addresses of its containers.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use regex::Regex;

const COMPOSE: &str = include_str!("../../../../deploy/compose.yaml");

/// Returns the addresses of an IPv4 network.
fn addresses(network: &str) -> RangeInclusive<Ipv4Addr> {
    let (first, prefix) = network.split_once('/').unwrap();
    let first: Ipv4Addr = first.parse().unwrap();
    first..=Ipv4Addr::from(u32::from(first) | (u32::MAX >> prefix.parse::<u32>().unwrap()))
}

/// Docker assigns a free address of the network, or of its `ip_range`, to a container without a fixed one. After a
/// restart, that address could be the fixed address of another container, which then fails to start.
#[test]
fn containers_without_a_fixed_address_cannot_get_the_one_of_another() {
    let fixed = Regex::new(r"(?m)^      (\w+): \{ ipv4_address: ([\d.]+) \}$").unwrap();
    let mut used = BTreeSet::new();
    for found in fixed.captures_iter(COMPOSE) {
        let (name, address) = (&found[1], found[2].parse::<Ipv4Addr>().unwrap());
        let network = format!(r"\n  {name}:\n(?:    .*\n)*?    ipam: .*subnet: ([\d./]+).*ip_range: ([\d./]+)");
        let network = Regex::new(&network).unwrap().captures(COMPOSE);
        let network = network.unwrap_or_else(|| panic!("the network {name} has no ip_range"));
        assert!(addresses(&network[1]).contains(&address), "{address} is not in the network {name}");
        assert!(!addresses(&network[2]).contains(&address), "{address} is in the ip_range of the network {name}");
        assert!(used.insert(address), "two containers have the address {address}");
    }
    assert_eq!(used.len(), COMPOSE.matches("ipv4_address").count(), "the pattern misses a fixed address");
    assert!(!used.is_empty());
}
