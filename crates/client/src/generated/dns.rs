//! DNS zones, their rrsets and DNSSEC.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::Time;
use crate::{Call, Client, Page, Paging, open_enum};

/// A DNSKEY record (RFC 4034 section 2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnskey {
    pub algorithm: i32,
    /// The flags: 257 for a key-signing key, 256 for a zone-signing key.
    pub flags: i32,
    pub key_tag: i32,
    /// The public key in base64.
    pub public_key: String,
}

/// The DNSSEC state of a zone, with the last signer check.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnssec {
    /// The DS records that the parent zone must publish.
    pub ds: Vec<Ds>,
    /// The last signer check. Null before the first check, and if no signer is configured.
    pub signer: Option<SignerView>,
    pub state: DnssecState,
}

open_enum! {
    pub enum DnssecState {
        Off = "off",
        Signing = "signing",
        DsPending = "ds_pending",
    }
}

/// A request to enable or disable DNSSEC.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DnssecSwitch {
    pub enabled: bool,
}

/// A DS record (RFC 4034 section 5), for the parent of a signed zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ds {
    pub algorithm: i32,
    /// The digest in hexadecimal.
    pub digest: String,
    pub digest_type: i32,
    pub key_tag: i32,
}

/// The DS records that were added to the parent zone, as the client reports them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DsReport {
    /// The DS records. An empty list means "not yet" and changes nothing.
    pub ds: Vec<Ds>,
}

open_enum! {
    pub enum ManagedBy {
        System = "system",
        Project = "project",
        Certificate = "certificate",
    }
}

/// A zone to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewZone {
    /// The domain name, in Unicode or punycode.
    pub name: String,
}

/// The result of a change to several rrsets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patched {
    pub added: Vec<RRset>,
    /// The rrsets that get other content, with the content after the change.
    pub changed: Vec<RRset>,
    /// The deleted rrsets, with the content before the change.
    pub removed: Vec<RRset>,
    /// The serial of the zone after the change. For a dry run, the current serial.
    pub serial: i32,
}

/// All records of a name and a type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RRset {
    /// The part of the platform that manages the rrset. Null if users edit it.
    #[serde(rename = "managed_by")]
    pub managed_by: Option<ManagedBy>,
    /// The absolute name in lowercase punycode, without the final dot.
    pub name: String,
    /// The records in canonical presentation format (RFC 1035 section 5.1).
    pub records: Vec<String>,
    /// The TTL in seconds.
    pub ttl: i32,
    pub r#type: RecordType,
}

open_enum! {
    pub enum RecordType {
        A = "A",
        Aaaa = "AAAA",
        Caa = "CAA",
        Cname = "CNAME",
        Https = "HTTPS",
        Loc = "LOC",
        Mx = "MX",
        Naptr = "NAPTR",
        Ns = "NS",
        Ptr = "PTR",
        Soa = "SOA",
        Srv = "SRV",
        Sshfp = "SSHFP",
        Svcb = "SVCB",
        Tlsa = "TLSA",
        Txt = "TXT",
        Uri = "URI",
    }
}

/// The complete content of an rrset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetContent {
    /// The records in presentation format (RFC 1035 section 5.1). Relative names are completed with the zone.
    pub records: Vec<String>,
    /// The TTL in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i32>,
}

/// One rrset of a patch, with its complete content. Its schema has no bounds, because the error of a patch names each
/// invalid rrset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetPatch {
    /// The name: `@`, a name relative to the zone, or an absolute name.
    pub name: String,
    /// At most 100 records. An empty list deletes the rrset, if it exists.
    pub records: Vec<String>,
    /// The TTL in seconds, from 30 to 86,400.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i64>,
    pub r#type: String,
}

/// Changes to several rrsets. Either all or none are applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetsPatch {
    /// Whether to return the changes without applying them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    pub rrsets: Vec<RrsetPatch>,
}

/// The state of a zone at the signer, as of the last signer check.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerView {
    /// The DS records that the signer requests with CDS records (RFC 7344).
    pub cds: Vec<Ds>,
    /// The error message of a failed check. Null if the check succeeded.
    pub error: Option<String>,
    pub keys: Vec<Dnskey>,
    pub observed_at: Time,
    /// The serial of the SOA record at the signer. Null if the signer does not serve the zone.
    pub serial: Option<i32>,
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// The bytes that count toward the limit of the organization's plan: the names of the rrsets, as text relative to
    /// the zone, and their data in wire format, with two more bytes for each record. The SOA does not count.
    pub bytes: i64,
    pub created_at: Time,
    pub dnssec: ZoneDnssec,
    pub id: ZoneId,
    /// The name in lowercase punycode, without the final dot.
    pub name: String,
    /// The nameservers to set at the registrar.
    pub nameservers: Vec<String>,
    pub rrset_count: i32,
    /// The serial of the SOA record. It is also the zone's ETag.
    pub serial: i32,
}

/// A zone with all its rrsets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneDetail {
    /// The bytes that count toward the limit of the organization's plan: the names of the rrsets, as text relative to
    /// the zone, and their data in wire format, with two more bytes for each record. The SOA does not count.
    pub bytes: i64,
    pub created_at: Time,
    pub dnssec: ZoneDnssec,
    pub id: ZoneId,
    /// The name in lowercase punycode, without the final dot.
    pub name: String,
    /// The nameservers to set at the registrar.
    pub nameservers: Vec<String>,
    pub rrset_count: i32,
    pub rrsets: Vec<RRset>,
    /// The serial of the SOA record. It is also the zone's ETag.
    pub serial: i32,
}

/// The DNSSEC state of a zone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneDnssec {
    /// The DS records that the parent zone must publish.
    pub ds: Vec<Ds>,
    pub state: DnssecState,
}

/// an id that starts with zon_
pub type ZoneId = String;

pub type ZonePage = Page<Zone>;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsDeleteHeaders {
    /// The ETag that the zone must have.
    pub if_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsPatchHeaders {
    /// The ETag that the zone must have.
    pub if_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsPutHeaders {
    /// The ETag that the zone must have.
    pub if_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsRemoveHeaders {
    /// The ETag that the zone must have.
    pub if_match: Option<String>,
}

impl Client {
    /// Create a zone, or return the existing one of the organization
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_create(&self, org_slug: &str, body: &NewZone) -> Call<ZoneDetail> {
        self.operation("dns.create", Method::POST, &["v1", "orgs", org_slug, "dns", "zones"]).idempotent().json(body)
    }

    /// Delete a zone with all its rrsets
    ///
    /// `DELETE /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_delete(&self, org_slug: &str, zone: &str, header: &DnsDeleteHeaders) -> Call<()> {
        self.operation("dns.delete", Method::DELETE, &["v1", "orgs", org_slug, "dns", "zones", zone])
            .header("If-Match", header.if_match.as_ref())
    }

    /// Get the DNSSEC state of a zone, as last seen at the signer
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_dnssec(&self, org_slug: &str, zone: &str) -> Call<Dnssec> {
        self.operation("dns.dnssec", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
    }

    /// Get a zone with all its rrsets
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_get(&self, org_slug: &str, zone: &str) -> Call<ZoneDetail> {
        self.operation("dns.get", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone])
    }

    /// List the zones of an organization, sorted by name
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_list(&self, org_slug: &str, query: &Paging) -> Call<ZonePage> {
        self.operation("dns.list", Method::GET, &["v1", "orgs", org_slug, "dns", "zones"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Change several rrsets in one transaction
    ///
    /// `PATCH /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets`
    pub fn dns_patch(&self, org_slug: &str, zone: &str, header: &DnsPatchHeaders, body: &RrsetsPatch) -> Call<Patched> {
        self.operation("dns.patch", Method::PATCH, &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets"])
            .header("If-Match", header.if_match.as_ref())
            .json(body)
    }

    /// Create or replace an rrset
    ///
    /// `PUT /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}`
    pub fn dns_put(
        &self,
        org_slug: &str,
        zone: &str,
        name: &str,
        r#type: &str,
        header: &DnsPutHeaders,
        body: &RrsetContent,
    ) -> Call<RRset> {
        self.operation("dns.put", Method::PUT, &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets", name, r#type])
            .header("If-Match", header.if_match.as_ref())
            .json(body)
    }

    /// Delete an rrset
    ///
    /// `DELETE /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}`
    pub fn dns_remove(
        &self,
        org_slug: &str,
        zone: &str,
        name: &str,
        r#type: &str,
        header: &DnsRemoveHeaders,
    ) -> Call<()> {
        self.operation(
            "dns.remove",
            Method::DELETE,
            &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets", name, r#type],
        )
        .header("If-Match", header.if_match.as_ref())
    }

    /// Record the DS records that the parent zone publishes
    ///
    /// `PUT /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds`
    pub fn dns_report(&self, org_slug: &str, zone: &str, body: &DsReport) -> Call<Zone> {
        self.operation("dns.report", Method::PUT, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec", "ds"])
            .json(body)
    }

    /// Enable or disable DNSSEC for a zone
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_switch(&self, org_slug: &str, zone: &str, body: &DnssecSwitch) -> Call<Zone> {
        self.operation("dns.switch", Method::POST, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
            .idempotent()
            .json(body)
    }
}
