//! Zones, their records and their signing.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::Time;
use crate::{Call, Client, Page, Paging, words};

/// A DNSKEY record (RFC 4034 section 2).
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnskey {
    pub algorithm: i32,
    /// 257 for a key that the parent vouches for, else 256.
    pub flags: i32,
    pub key_tag: i32,
    /// In base64.
    pub public_key: String,
}

/// The signing of a zone, with what the signer shows of it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Dnssec {
    /// What the parent is to publish.
    pub ds: Vec<Ds>,
    /// Null before the first look, and where no signer is configured.
    pub signer: Option<SignerView>,
    pub state: DnssecState,
}

words! {
    pub enum DnssecState {
        Off = "off",
        Signing = "signing",
        DsPending = "ds_pending",
    }
}

/// Whether a zone is to be signed.
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
    /// In hexadecimal.
    pub digest: String,
    pub digest_type: i32,
    pub key_tag: i32,
}

/// The DS records that were handed to the parent, as far as somebody reports them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DsReport {
    /// None for "not yet", which changes nothing.
    pub ds: Vec<Ds>,
}

words! {
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
    /// A domain name, in Unicode or punycode.
    pub name: String,
}

/// What a change of several rrsets comes to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Patched {
    pub added: Vec<RRset>,
    /// As they are afterwards.
    pub changed: Vec<RRset>,
    /// As they were.
    pub removed: Vec<RRset>,
    /// Of the zone with the change; of the zone as it is, for a dry run.
    pub serial: i32,
}

/// All records of a name and a type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RRset {
    /// Who looks after it; null for what users edit.
    #[serde(rename = "managed_by")]
    pub managed_by: Option<ManagedBy>,
    /// Absolute, lowercase punycode, without the final dot.
    pub name: String,
    /// In presentation format (RFC 1035 section 5.1), canonical.
    pub records: Vec<String>,
    /// In seconds.
    pub ttl: i32,
    pub r#type: RecordType,
}

words! {
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

/// The whole content of an rrset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetContent {
    /// In presentation format (RFC 1035 section 5.1); relative names are completed with the zone.
    pub records: Vec<String>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i32>,
}

/// The whole content of one of several rrsets.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetPatch {
    /// `@`, a name relative to the zone, or an absolute one.
    pub name: String,
    /// None for deleting the rrset; one that is not there stays so.
    pub records: Vec<String>,
    /// In seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<i32>,
    pub r#type: String,
}

/// Several rrsets, changed together or not at all.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RrsetsPatch {
    /// Answers what would change, and changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<bool>,
    pub rrsets: Vec<RrsetPatch>,
}

/// What was seen at the signer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignerView {
    /// The DS records that it asks for (RFC 7344).
    pub cds: Vec<Ds>,
    /// Why nothing was seen, in words for people; null when all went well.
    pub error: Option<String>,
    pub keys: Vec<Dnskey>,
    pub observed_at: Time,
    /// Of the SOA record that it answers; null when it answers none.
    pub serial: Option<i32>,
}

/// A zone.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    pub created_at: Time,
    pub dnssec: ZoneDnssec,
    pub id: ZoneId,
    /// Lowercase punycode, without the final dot.
    pub name: String,
    /// What the registrar is to be told.
    pub nameservers: Vec<String>,
    pub rrset_count: i32,
    /// Of the SOA record; also the zone's ETag.
    pub serial: i32,
}

/// A zone with all its rrsets.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneDetail {
    pub created_at: Time,
    pub dnssec: ZoneDnssec,
    pub id: ZoneId,
    /// Lowercase punycode, without the final dot.
    pub name: String,
    /// What the registrar is to be told.
    pub nameservers: Vec<String>,
    pub rrset_count: i32,
    pub rrsets: Vec<RRset>,
    /// Of the SOA record; also the zone's ETag.
    pub serial: i32,
}

/// Whether a zone is signed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneDnssec {
    /// What the parent is to publish.
    pub ds: Vec<Ds>,
    pub state: DnssecState,
}

/// an id that starts with zon_
pub type ZoneId = String;

pub type ZonePage = Page<Zone>;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsPatchHeaders {
    /// The ETag of the zone that the request is meant for.
    pub if_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsPutHeaders {
    /// The ETag of the zone that the request is meant for.
    pub if_match: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DnsRemoveHeaders {
    /// The ETag of the zone that the request is meant for.
    pub if_match: Option<String>,
}

impl Client {
    /// Create a zone; the organization's own is answered as it is
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_create(&self, org_slug: &str, body: &NewZone) -> Call<ZoneDetail> {
        self.operation("dns.create", Method::POST, &["v1", "orgs", org_slug, "dns", "zones"]).once().json(body)
    }

    /// Delete a zone with everything in it
    ///
    /// `DELETE /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_delete(&self, org_slug: &str, zone: &str) -> Call<()> {
        self.operation("dns.delete", Method::DELETE, &["v1", "orgs", org_slug, "dns", "zones", zone])
    }

    /// Whether the zone is signed, and what was seen at the signer
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_dnssec(&self, org_slug: &str, zone: &str) -> Call<Dnssec> {
        self.operation("dns.dnssec", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
    }

    /// One zone with all its rrsets
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_get(&self, org_slug: &str, zone: &str) -> Call<ZoneDetail> {
        self.operation("dns.get", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone])
    }

    /// The zones of the organization, by name
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_list(&self, org_slug: &str, query: &Paging) -> Call<ZonePage> {
        self.operation("dns.list", Method::GET, &["v1", "orgs", org_slug, "dns", "zones"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Change several rrsets together, or none
    ///
    /// `PATCH /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets`
    pub fn dns_patch(&self, org_slug: &str, zone: &str, header: &DnsPatchHeaders, body: &RrsetsPatch) -> Call<Patched> {
        self.operation("dns.patch", Method::PATCH, &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets"])
            .header("If-Match", header.if_match.as_ref())
            .json(body)
    }

    /// Replace an rrset
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

    /// Record which DS records the parent is given
    ///
    /// `PUT /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds`
    pub fn dns_report(&self, org_slug: &str, zone: &str, body: &DsReport) -> Call<Zone> {
        self.operation("dns.report", Method::PUT, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec", "ds"])
            .json(body)
    }

    /// Have the zone signed, or no longer
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_switch(&self, org_slug: &str, zone: &str, body: &DnssecSwitch) -> Call<Zone> {
        self.operation("dns.switch", Method::POST, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
            .once()
            .json(body)
    }
}
