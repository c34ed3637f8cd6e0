//! What zones ask of storage.

use kernel::{OrgId, Paging, Time, ZoneId};
use store::Result;

use crate::model::{DnssecState, Ds, ManagedBy, SignerView};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneName, serial};

/// A zone's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneRecord {
    pub id: ZoneId,
    pub name: ZoneName,
    pub serial: u32,
    /// Of the stored rrsets: the SOA is none of them.
    pub rrset_count: u32,
    /// The number of the journal's last entry.
    pub last_change: i64,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    pub signer: Option<SignerView>,
    pub created_at: Time,
}

impl ZoneRecord {
    /// The serial of the next change.
    pub(crate) fn next_serial(&self, now: Time) -> u32 {
        serial::next(now, self.serial, self.signer.as_ref().and_then(|view| view.serial))
    }
}

/// A zone as nameservers ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedZone {
    pub id: ZoneId,
    pub name: ZoneName,
    pub serial: u32,
    pub rrset_count: u32,
}

/// A stored rrset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSet {
    pub set: RecordSet,
    pub managed_by: Option<ManagedBy>,
}

/// Time to live in seconds, records, and who looks after them.
pub type Content = (u32, Vec<Rdata>, Option<ManagedBy>);

/// What becomes of an rrset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub owner: OwnerName,
    pub kind: RecordType,
    pub old: Option<Content>,
    pub new: Option<Content>,
}

/// An entry of the journal. Entries of one change share its serials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub from_serial: u32,
    pub to_serial: u32,
    pub owner: OwnerName,
    pub kind: RecordType,
    pub old: Option<(u32, Vec<Rdata>)>,
    pub new: Option<(u32, Vec<Rdata>)>,
}

/// Edits of a zone as one step, to write.
#[derive(Debug)]
pub struct Step<'a> {
    /// As it was locked.
    pub zone: &'a ZoneRecord,
    pub serial: u32,
    pub edits: &'a [Edit],
    /// Journal entries that are kept of the zone; a step of more begins a new journal.
    pub keep: i64,
    /// When to look at the signer of a signed zone, to see whether the step has arrived.
    pub look_at: Time,
}

/// A zone whose signer is due for a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    pub id: ZoneId,
    pub org: OrgId,
    pub name: ZoneName,
    pub serial: u32,
    pub dnssec: DnssecState,
    pub ds: Vec<Ds>,
    pub before: Option<SignerView>,
    /// Until when nobody else looks: whoever wants another look meanwhile has moved it.
    pub lease: Time,
}

/// The verbs of this context on a [`store::Connection`].
pub trait DnsRepository {
    /// The zones of an organization, by name.
    async fn zone_list(
        &mut self,
        org: OrgId,
        only: Option<&[ZoneId]>,
        paging: &Paging<String>,
    ) -> Result<Vec<ZoneRecord>>;

    /// One zone of an organization.
    async fn zone_find(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// One zone of an organization, locked until the transaction ends.
    async fn zone_lock(&mut self, org: OrgId, name: &ZoneName) -> Result<Option<ZoneRecord>>;

    /// A zone, locked until the transaction ends.
    async fn zone_lock_by_id(&mut self, zone: ZoneId) -> Result<Option<ZoneRecord>>;

    /// The catalog, locked until the transaction ends. Who locks it and zones locks it first.
    async fn catalog_lock(&mut self) -> Result<ZoneRecord>;

    /// Whether a zone of another organization is this one, over it or in it; meaningful under the catalog's lock alone.
    async fn zone_overlaps(&mut self, org: OrgId, name: &ZoneName) -> Result<bool>;

    /// The organization's zones that a name lies in, the nearest one first.
    async fn zones_over(&mut self, org: OrgId, name: &str) -> Result<Vec<ZoneName>>;

    /// Writes a new zone, without rrsets.
    async fn zone_insert(&mut self, org: OrgId, zone: &ZoneRecord) -> Result<()>;

    /// Deletes a zone and everything in it.
    async fn zone_delete(&mut self, zone: ZoneId) -> Result<()>;

    /// Raises a zone's serial without changing anything in it; what nameservers transfer next is the whole of it.
    async fn zone_raise(&mut self, zone: ZoneId, serial: u32) -> Result<()>;

    /// Writes how far the signing is, and when to look at the signer next.
    async fn zone_set_dnssec(
        &mut self,
        zone: ZoneId,
        state: DnssecState,
        ds: &[Ds],
        look_at: Option<Time>,
    ) -> Result<()>;

    /// All rrsets of a zone.
    async fn rrset_list(&mut self, zone: ZoneId) -> Result<Vec<StoredSet>>;

    /// The rrsets at some names of a zone.
    async fn rrset_at(&mut self, zone: ZoneId, owners: &[&str]) -> Result<Vec<StoredSet>>;

    /// Writes edits, the journal and the serial, in one statement whose cost does not grow with the zone.
    async fn rrset_apply(&mut self, step: Step<'_>) -> Result<()>;

    /// Some zones whose apex NS rrset is not this one, with their organizations; the catalog is none of them.
    async fn zones_apart(&mut self, nameservers: &[Rdata], most: i64) -> Result<Vec<(ZoneId, OrgId)>>;

    /// Takes zones whose signer is due for a look, which is due again at `lease`.
    async fn looks_due(&mut self, now: Time, lease: Time, most: i64) -> Result<Vec<Looked>>;

    /// Notes what was seen at the signer, and when to look again, unless somebody wants that sooner.
    async fn look_note(&mut self, looked: &Looked, view: &SignerView, look_at: Option<Time>) -> Result<()>;

    /// A zone as nameservers ask for it; none for a name that no zone has.
    async fn served_find(&mut self, name: &str) -> Result<Option<ServedZone>>;

    /// The catalog as nameservers ask for it. Its name is a setting, and not here.
    async fn served_catalog(&mut self) -> Result<ServedZone>;

    /// Some rrsets of a zone, in the order of name and type, after one of them.
    async fn served_page(&mut self, zone: ZoneId, after: Option<(&str, &str)>, most: i64) -> Result<Vec<RecordSet>>;

    /// The journal from a serial on; none when it does not reach back so far, or holds more entries than wanted.
    async fn served_changes(&mut self, zone: ZoneId, from_serial: u32, most: i64) -> Result<Option<Vec<Change>>>;
}
