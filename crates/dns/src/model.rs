//! Request and response types of the API (contract section 6).

use kernel::{Time, ZoneId};
use serde::{Deserialize, Serialize};
use validator::Validate;

use crate::{OwnerName, Rdata, RecordType, ZoneName};

kernel::words! {
    /// The signing state of a zone.
    pub enum DnssecState {
        Off = "off",
        /// The nameserver signs the zone. The DS records are not known yet.
        Signing = "signing",
        /// The DS records for the parent zone are known.
        DsPending = "ds_pending",
    } example DsPending
}

kernel::words! {
    /// The part of the platform that manages an rrset.
    pub enum ManagedBy {
        /// The platform: the NS records of the zone, and those that delegate zones below it.
        System = "system",
        /// A hostname of a project.
        Project = "project",
        /// The issuance of a certificate.
        Certificate = "certificate",
    }
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "name": "example.org",
        "serial": 2026112101,
        "nameservers": ["ns1.svc.example", "ns2.svc.example"],
        "rrsetCount": 1,
        "bytes": 39,
    }))
)]
pub struct Zone {
    pub id: ZoneId,
    /// The name in lowercase punycode, without the final dot.
    pub name: String,
    /// The serial of the SOA record. It is also the zone's ETag.
    pub serial: u32,
    /// The nameservers to set at the registrar.
    pub nameservers: Vec<String>,
    pub rrset_count: u32,
    /// The bytes that count toward the limit of the organization's plan: the names of the rrsets, as text relative to
    /// the zone, and their data in wire format, with two more bytes for each record. The SOA does not count.
    pub bytes: u64,
    pub dnssec: ZoneDnssec,
    pub created_at: Time,
}

/// The DNSSEC state of a zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ZoneDnssec {
    pub state: DnssecState,
    /// The DS records that the parent zone must publish.
    pub ds: Vec<Ds>,
}

/// A zone with all its rrsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ZoneDetail {
    #[serde(flatten)]
    pub zone: Zone,
    pub rrsets: Vec<Rrset>,
}

/// All records of a name and a type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RRset))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "name": "www.example.org",
        "ttl": 300,
        "records": ["192.0.2.1"],
    }))
)]
pub struct Rrset {
    /// The absolute name in lowercase punycode, without the final dot.
    pub name: String,
    #[serde(rename = "type")]
    pub kind: RecordType,
    /// The TTL in seconds.
    pub ttl: u32,
    /// The records in canonical presentation format (RFC 1035 section 5.1).
    pub records: Vec<String>,
    /// The part of the platform that manages the rrset. Null if users edit it.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub managed_by: Option<ManagedBy>,
}

/// A DS record (RFC 4034 section 5), for the parent of a signed zone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "keyTag": 60485,
        "algorithm": 13,
        "digestType": 2,
        "digest": "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
    }))
)]
pub struct Ds {
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 65535))]
    pub key_tag: u16,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 255))]
    pub algorithm: u8,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 255))]
    pub digest_type: u8,
    /// The digest in hexadecimal.
    #[cfg_attr(feature = "openapi", schema(pattern = "^(?:[0-9A-Fa-f]{2}){1,64}$"))]
    #[cfg_attr(
        feature = "openapi",
        schema(extensions(("x-rule" = json!("2 to 128 hexadecimal digits, two for each byte"))))
    )]
    pub digest: String,
}

/// A zone to create.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewZone {
    /// The domain name, in Unicode or punycode.
    #[cfg_attr(feature = "openapi", schema(format = "zone-name", min_length = 1, max_length = 1024))]
    #[cfg_attr(feature = "openapi", schema(example = "example.org"))]
    pub name: String,
}

/// The complete content of an rrset.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RrsetContent {
    /// The TTL in seconds.
    #[cfg_attr(feature = "openapi", schema(minimum = 30, maximum = 86400, default = 300))]
    pub ttl: Option<u32>,
    /// The records in presentation format (RFC 1035 section 5.1). Relative names are completed with the zone.
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 100, example = json!(["192.0.2.1"])))]
    pub records: Vec<String>,
}

/// Changes to several rrsets. Either all or none are applied.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RrsetsPatch {
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 1000))]
    pub rrsets: Vec<RrsetPatch>,
    /// Whether to return the changes without applying them.
    #[serde(default)]
    pub dry_run: bool,
}

/// One rrset of a patch, with its complete content. Its schema has no bounds, because the error of a patch names each
/// invalid rrset.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RrsetPatch {
    /// The name: `@`, a name relative to the zone, or an absolute name.
    #[cfg_attr(feature = "openapi", schema(example = "www"))]
    pub name: String,
    #[serde(rename = "type")]
    #[cfg_attr(feature = "openapi", schema(example = "A"))]
    pub kind: String,
    /// The TTL in seconds, from 30 to 86,400.
    #[cfg_attr(feature = "openapi", schema(default = 300))]
    pub ttl: Option<i64>,
    /// At most 100 records. An empty list deletes the rrset, if it exists.
    #[cfg_attr(feature = "openapi", schema(example = json!(["192.0.2.1"])))]
    pub records: Vec<String>,
}

/// The result of a change to several rrsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "serial": 2026112101, "changed": [], "removed": [] })))]
pub struct Patched {
    /// The serial of the zone after the change. For a dry run, the current serial.
    pub serial: u32,
    pub added: Vec<Rrset>,
    /// The rrsets that get other content, with the content after the change.
    pub changed: Vec<Rrset>,
    /// The deleted rrsets, with the content before the change.
    pub removed: Vec<Rrset>,
}

/// The changes that a zone file would make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "changed": [], "removed": [] })))]
pub struct Difference {
    pub added: Vec<Rrset>,
    /// The rrsets that would get other content, with the content after the change.
    pub changed: Vec<Rrset>,
    /// The rrsets that would be deleted, with their current content.
    pub removed: Vec<Rrset>,
}

/// A request to enable or disable DNSSEC.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(example = json!({ "enabled": true })))]
pub struct DnssecSwitch {
    pub enabled: bool,
}

/// The DS records that were added to the parent zone, as the client reports them.
#[derive(Debug, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DsReport {
    /// The DS records. An empty list means "not yet" and changes nothing.
    #[validate(nested)]
    #[cfg_attr(feature = "openapi", schema(max_items = 16))]
    pub ds: Vec<Ds>,
}

/// The DNSSEC state of a zone, with the last signer check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Dnssec {
    pub state: DnssecState,
    /// The DS records that the parent zone must publish.
    pub ds: Vec<Ds>,
    /// The last signer check. Null before the first check, and if no signer is configured.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub signer: Option<SignerView>,
}

/// The state of a zone at the signer, as of the last signer check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "serial": 2026112101 })))]
pub struct SignerView {
    /// The serial of the SOA record at the signer. Null if the signer does not serve the zone.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub serial: Option<u32>,
    pub keys: Vec<Dnskey>,
    /// The DS records that the signer requests with CDS records (RFC 7344).
    pub cds: Vec<Ds>,
    /// The error message of a failed check. Null if the check succeeded.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub error: Option<String>,
    pub observed_at: Time,
}

/// A DNSKEY record (RFC 4034 section 2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "keyTag": 60485,
        "flags": 257,
        "algorithm": 13,
        "publicKey": "RVhBTVBMRS1FWEFNUExFLUVYQU1QTEU=",
    }))
)]
pub struct Dnskey {
    pub key_tag: u16,
    /// The flags: 257 for a key-signing key, 256 for a zone-signing key.
    pub flags: u16,
    pub algorithm: u8,
    /// The public key in base64.
    pub public_key: String,
}

impl Rrset {
    /// Creates the API representation of an rrset.
    #[must_use]
    pub fn new(
        zone: &ZoneName,
        (owner, kind): (&OwnerName, RecordType),
        ttl: u32,
        records: &[Rdata],
        managed_by: Option<ManagedBy>,
    ) -> Self {
        let records = records.iter().map(|record| record.text(kind)).collect();
        Self { name: owner.absolute(zone), kind, ttl, records, managed_by }
    }
}
