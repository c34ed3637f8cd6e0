//! How this deployment hosts zones.

use crate::{OwnerName, Rdata, RecordType, Soa, ZoneName};

/// The nameservers of every zone, and what else zones have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosting {
    /// Absolute, lowercase, without the final dot; never none.
    nameservers: Vec<String>,
    ns: Vec<Rdata>,
    /// What a name connected to a project points at: absolute, without the final dot.
    pub fallback_origin: String,
    /// Where names are pointed at that cannot be a CNAME.
    pub fallback_addresses: Vec<std::net::IpAddr>,
    /// The platform's own domains, lowercase: no organization has a zone in them or over them.
    pub own_domains: Vec<String>,
    /// Whether nameservers are told of changes: there is a hidden primary that they transfer from.
    pub notifies: bool,
    /// Whether there is a signer to look at.
    pub observes: bool,
}

/// A nameserver that cannot be one; in words for its setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHosting {
    #[error("names no nameserver")]
    NoNameserver,
    #[error("{0:?} is no domain name")]
    Nameserver(String),
}

impl Hosting {
    /// With these nameservers.
    ///
    /// # Errors
    /// When one of them is no domain name, or there is none.
    pub fn new(nameservers: &[String], fallback_origin: &str) -> Result<Self, InvalidHosting> {
        let root = ZoneName::stored(String::new());
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
            own_domains: Vec::new(),
            notifies: false,
            observes: false,
        })
    }

    /// What the registrar is to be told, in the order of the settings.
    #[must_use]
    pub fn nameservers(&self) -> &[String] {
        &self.nameservers
    }

    /// The apex NS rrset of every zone: its time to live and its records in canonical order.
    #[must_use]
    pub fn ns(&self) -> (u32, &[Rdata]) {
        (Soa::TTL, &self.ns)
    }

    /// The start of authority of a zone, and its time to live.
    #[must_use]
    pub fn soa(&self, zone: &ZoneName, serial: u32) -> (u32, Soa) {
        // Not the first of the settings: their order may change without a new serial.
        let primary = self.ns.first().map(|name| name.text(RecordType::Ns)).unwrap_or_default();
        let primary = primary.trim_end_matches('.').to_owned();
        let hostmaster = format!("hostmaster.{}", zone.as_str());
        (Soa::TTL, Soa { primary, hostmaster, serial, refresh: 3600, retry: 600, expire: 1_209_600, minimum: 300 })
    }

    /// The start of authority of the catalog (RFC 9432 section 4.1), and its time to live.
    #[must_use]
    pub fn catalog_soa(serial: u32) -> (u32, Soa) {
        let invalid = || "invalid".to_owned();
        let (primary, hostmaster) = (invalid(), invalid());
        (0, Soa { primary, hostmaster, serial, refresh: 600, retry: 60, expire: 1_209_600, minimum: 0 })
    }

    /// The records that lead visitors of a connected name to the platform; none when there is no way to say so in DNS.
    #[must_use]
    pub fn link(&self, owner: &OwnerName, zone: &ZoneName) -> Vec<(RecordType, Vec<Rdata>)> {
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
