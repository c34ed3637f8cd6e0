//! Zones in PowerDNS's format. Names end with a dot.

use dns::{DnssecState, ManagedBy, Rrset, StoredSet, Zone, ZoneDetail};
use serde::Serialize;

/// The kind of zones whose secondaries are notified. Some clients request a notification only for zones of this kind.
const KIND: &str = "Master";

/// A zone in a listing.
#[derive(Debug, Serialize)]
pub(super) struct ZoneView {
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

/// A zone with its settings and rrsets.
#[derive(Debug, Serialize)]
pub(super) struct ZoneDetailView {
    #[serde(flatten)]
    zone: ZoneView,
    api_rectify: bool,
    master_tsig_key_ids: [&'static str; 0],
    slave_tsig_key_ids: [&'static str; 0],
    nsec3narrow: bool,
    nsec3param: &'static str,
    soa_edit: &'static str,
    soa_edit_api: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rrsets: Option<Vec<RrsetView>>,
}

#[derive(Debug, Serialize)]
pub(super) struct RrsetView {
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    ttl: u32,
    records: Vec<RecordView>,
    comments: [&'static str; 0],
}

#[derive(Debug, Serialize)]
struct RecordView {
    content: String,
    disabled: bool,
}

impl ZoneView {
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

impl ZoneDetailView {
    /// Returns the zone without rrsets.
    pub(super) fn of(zone: Zone, org: &str) -> Self {
        Self {
            zone: ZoneView::of(zone, org),
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

    /// Returns a new zone with its visible rrsets.
    pub(super) fn with_rrsets(detail: ZoneDetail, org: &str) -> Self {
        let ZoneDetail { zone, rrsets } = detail;
        let visible = rrsets.into_iter().filter(|rrset| is_shown(rrset.managed_by, rrset.name == zone.name));
        Self { rrsets: Some(visible.map(RrsetView::of).collect()), ..Self::of(zone, org) }
    }
}

/// Returns whether an rrset is visible. Rrsets that the platform manages for projects, certificates and zones below are
/// hidden, because a client that manages the whole zone would delete them.
pub(super) fn is_visible(stored: &StoredSet) -> bool {
    is_shown(stored.managed_by, stored.set.owner.is_apex())
}

fn is_shown(managed_by: Option<ManagedBy>, is_apex: bool) -> bool {
    managed_by.is_none_or(|by| by == ManagedBy::System && is_apex)
}

impl RrsetView {
    pub(super) fn of(rrset: Rrset) -> Self {
        let records = rrset.records.into_iter().map(|content| RecordView { content, disabled: false });
        Self {
            name: format!("{}.", rrset.name),
            kind: rrset.kind.as_str(),
            ttl: rrset.ttl,
            records: records.collect(),
            comments: [],
        }
    }
}
