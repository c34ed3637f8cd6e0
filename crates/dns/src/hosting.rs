//! The DNS hosting configuration of this installation.

use kernel::OrgId;
use kernel::domain::is_within;

use crate::{OwnerName, Rdata, RecordType, Soa, ZoneName};

/// Nameservers and other configuration that all zones share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosting {
    /// The names of the nameservers: absolute, lowercase, without the final dot. Not empty.
    nameservers: Vec<String>,
    ns: Vec<Rdata>,
    /// The CNAME target of a hostname that is linked to a project: absolute, without the final dot.
    pub fallback_origin: String,
    /// Addresses for linked hostnames that cannot have a CNAME.
    pub fallback_addresses: Vec<std::net::IpAddr>,
    /// The platform's domains, lowercase. Zones of organizations other than `platform_org` cannot overlap with them.
    pub platform_domains: Vec<String>,
    /// The domains with which no zone can overlap, lowercase.
    pub reserved_domains: Vec<String>,
    /// The operator's organization, which may host the zones of the platform's domains.
    pub platform_org: Option<OrgId>,
    /// Whether this installation runs a hidden primary, which sends NOTIFY messages to the nameservers.
    pub has_primary: bool,
}

/// An invalid nameserver setting. The message is shown after the name of the setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHosting {
    #[error("must name at least one nameserver")]
    NoNameserver,
    #[error("{0:?} is not a domain name")]
    Nameserver(String),
}

impl Hosting {
    /// Creates the configuration with these nameservers.
    ///
    /// # Errors
    /// Returns an error for an empty list, or an invalid domain name.
    pub fn new(nameservers: &[String], fallback_origin: &str) -> Result<Self, InvalidHosting> {
        let root = ZoneName::new_unchecked(String::new());
        let parse = |name: &String| {
            let absolute = format!("{}.", name.trim_end_matches('.'));
            Rdata::parse(RecordType::Ns, &absolute, &root).map_err(|_| InvalidHosting::Nameserver(name.clone()))
        };
        let mut ns = nameservers.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let names =
            ns.iter().map(|name| name.text(RecordType::Ns).trim_end_matches('.').to_owned()).collect::<Vec<_>>();
        ns.sort_unstable();
        ns.dedup();
        if ns.is_empty() {
            return Err(InvalidHosting::NoNameserver);
        }
        Ok(Self {
            nameservers: names,
            ns,
            fallback_origin: fallback_origin.to_owned(),
            fallback_addresses: Vec::new(),
            platform_domains: Vec::new(),
            reserved_domains: Vec::new(),
            platform_org: None,
            has_primary: false,
        })
    }

    /// Returns the domain of the platform that a name overlaps with, if the organization may not host a zone of this
    /// name. Only the platform's organization may host the zones of the platform's domains.
    #[must_use]
    pub fn overlapping_domain(&self, org: OrgId, name: &ZoneName) -> Option<&str> {
        let related = |own: &&String| is_within(name.as_str(), own) || is_within(own, name.as_str());
        let foreign = if self.platform_org == Some(org) { &[][..] } else { &self.platform_domains };
        self.reserved_domains.iter().chain(foreign).find(related).map(String::as_str)
    }

    /// Returns the nameservers to set at the registrar, in the order of the setting.
    #[must_use]
    pub fn nameservers(&self) -> &[String] {
        &self.nameservers
    }

    /// Returns the apex NS rrset of every zone: TTL and records, in canonical order.
    #[must_use]
    pub fn ns(&self) -> (u32, &[Rdata]) {
        (Soa::TTL, &self.ns)
    }

    /// Returns the TTL and the SOA of a zone.
    #[must_use]
    pub fn soa(&self, zone: &ZoneName, serial: u32) -> (u32, Soa) {
        // Take the first name in canonical order, not the first name of the setting, so that reordering the setting
        // does not change the SOA and raise the serial.
        let primary = self.ns.first().map(|name| name.text(RecordType::Ns)).unwrap_or_default();
        let primary = primary.trim_end_matches('.').to_owned();
        let hostmaster = format!("hostmaster.{}", zone.as_str());
        (Soa::TTL, Soa { primary, hostmaster, serial, refresh: 3600, retry: 600, expire: 1_209_600, minimum: 300 })
    }

    /// Returns the TTL and SOA of the catalog (RFC 9432 section 4.1).
    #[must_use]
    pub fn catalog_soa(serial: u32) -> (u32, Soa) {
        let invalid = || "invalid".to_owned();
        let (primary, hostmaster) = (invalid(), invalid());
        (0, Soa { primary, hostmaster, serial, refresh: 600, retry: 60, expire: 1_209_600, minimum: 0 })
    }

    /// Returns the records that point a linked hostname to the platform. The list is empty for an apex without fallback
    /// addresses.
    #[must_use]
    pub fn link_records(&self, owner: &OwnerName, zone: &ZoneName) -> Vec<(RecordType, Vec<Rdata>)> {
        let parse = |kind, text: &str| Rdata::parse(kind, text, zone).ok();
        if !owner.is_apex() {
            let target = parse(RecordType::Cname, &format!("{}.", self.fallback_origin));
            return target.map(|target| (RecordType::Cname, vec![target])).into_iter().collect();
        }
        let of = |kind, wanted: fn(&std::net::IpAddr) -> bool| {
            let addresses = self.fallback_addresses.iter().filter(|it| wanted(it));
            let mut records: Vec<Rdata> = addresses.filter_map(|it| parse(kind, &it.to_string())).collect();
            records.sort_unstable();
            records.dedup();
            (!records.is_empty()).then_some((kind, records))
        };
        let (v4, v6) = (of(RecordType::A, |it| it.is_ipv4()), of(RecordType::Aaaa, |it| it.is_ipv6()));
        v4.into_iter().chain(v6).collect()
    }
}
