//! Zones as PowerDNS shows them. Names end in a dot.

use dns::{DnssecState, ManagedBy, Rrset, Zone, ZoneDetail};
use serde::Serialize;

/// Of the zones whose secondaries are notified: some tools ask for that only where they see this kind.
const KIND: &str = "Master";

/// A zone, as lists show it.
#[derive(Debug, Serialize)]
pub(super) struct ShownZone {
    id: String,
    name: String,
    url: String,
    kind: &'static str,
    /// The slug of the organization.
    account: String,
    dnssec: bool,
    serial: u32,
    edited_serial: u32,
    notified_serial: u32,
    last_check: u32,
    masters: [&'static str; 0],
    catalog: &'static str,
}

/// A zone, as it is shown by itself.
#[derive(Debug, Serialize)]
pub(super) struct ShownDetail {
    #[serde(flatten)]
    zone: ShownZone,
    api_rectify: bool,
    master_tsig_key_ids: [&'static str; 0],
    slave_tsig_key_ids: [&'static str; 0],
    nsec3narrow: bool,
    nsec3param: &'static str,
    soa_edit: &'static str,
    soa_edit_api: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rrsets: Option<Vec<ShownRrset>>,
}

#[derive(Debug, Serialize)]
struct ShownRrset {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    ttl: u32,
    records: Vec<ShownRecord>,
    comments: [&'static str; 0],
}

#[derive(Debug, Serialize)]
struct ShownRecord {
    content: String,
    disabled: bool,
}

impl ShownZone {
    pub(super) fn of(zone: Zone, org: &str) -> Self {
        let name = format!("{}.", zone.name);
        Self {
            id: name.clone(),
            url: format!("/api/v1/servers/localhost/zones/{name}"),
            name,
            kind: KIND,
            account: org.to_owned(),
            dnssec: zone.dnssec.state != DnssecState::Off,
            serial: zone.serial,
            edited_serial: zone.serial,
            notified_serial: zone.serial,
            last_check: 0,
            masters: [],
            catalog: "",
        }
    }
}

impl ShownDetail {
    /// Without rrsets.
    pub(super) fn of(zone: Zone, org: &str) -> Self {
        Self {
            zone: ShownZone::of(zone, org),
            api_rectify: false,
            master_tsig_key_ids: [],
            slave_tsig_key_ids: [],
            nsec3narrow: false,
            nsec3param: "",
            soa_edit: "",
            soa_edit_api: "DEFAULT",
            rrsets: None,
        }
    }

    /// With those rrsets that are `wanted`. What the platform manages for projects and certificates is not among them:
    /// a tool that looks after a whole zone would have it deleted.
    pub(super) fn with_rrsets(detail: ZoneDetail, org: &str, wanted: impl Fn(&Rrset) -> bool) -> Self {
        let ZoneDetail { zone, rrsets } = detail;
        let own = |rrset: &Rrset| matches!(rrset.managed_by, None | Some(ManagedBy::System));
        let shown = rrsets.into_iter().filter(|rrset| own(rrset) && wanted(rrset)).map(ShownRrset::of);
        Self { rrsets: Some(shown.collect()), ..Self::of(zone, org) }
    }
}

impl ShownRrset {
    fn of(rrset: Rrset) -> Self {
        let records = rrset.records.into_iter().map(|content| ShownRecord { content, disabled: false });
        Self {
            name: format!("{}.", rrset.name),
            kind: rrset.kind.as_str(),
            ttl: rrset.ttl,
            records: records.collect(),
            comments: [],
        }
    }
}
