//! The DNSSEC keys of a zone, as of the last signer check, and PowerDNS's zone metadata, which is always empty.

use ::dns::{Dnskey, Dnssec, Ds};
use serde::Serialize;
use serde_json::{Value, json};

use super::policy::ApiKeyZone;
use super::response::PdnsResponse;
use crate::authority::role::Viewer;
use crate::authority::scope::DnsRead;
use crate::http::{Path, Routes, text_path_parameters};
use crate::problem::Problem;
use crate::require::RequireDns;

/// The flag of a secure entry point (RFC 4034 section 2.1.1).
const SECURE_ENTRY_POINT: u16 = 1;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("keys", "Zone keys and metadata.");
    area.get("list", "/api/v1/servers/localhost/zones/{zone}/cryptokeys", list);
    area.get("metadata", "/api/v1/servers/localhost/zones/{zone}/metadata", metadata);
    area.get("metadata_of", "/api/v1/servers/localhost/zones/{zone}/metadata/{kind}", metadata_of);
}

text_path_parameters! {
    MetadataKind: "The kind of the zone's metadata.", "ALSO-NOTIFY";
}

#[derive(Debug, Serialize)]
struct KeyView {
    #[serde(rename = "type")]
    kind: &'static str,
    /// The key tag. It replaces PowerDNS's key counter.
    id: u16,
    keytype: &'static str,
    active: bool,
    published: bool,
    flags: u16,
    algorithm: String,
    /// The key in presentation format, like the DS records (RFC 4034 sections 2.2 and 5.3).
    dnskey: String,
    ds: Vec<String>,
}

async fn list(at: ApiKeyZone<Viewer, DnsRead>, zones: RequireDns) -> Result<PdnsResponse<Vec<KeyView>>, Problem> {
    Ok(PdnsResponse(key_views(&zones.dnssec(at.org.id, at.zone.as_str()).await?)))
}

async fn metadata(_: ApiKeyZone<Viewer, DnsRead>) -> Result<PdnsResponse<[Value; 0]>, Problem> {
    Ok(PdnsResponse([]))
}

async fn metadata_of(
    _: ApiKeyZone<Viewer, DnsRead>,
    Path(MetadataKind(kind)): Path<MetadataKind>,
) -> Result<PdnsResponse<Value>, Problem> {
    Ok(PdnsResponse(json!({ "type": "Metadata", "kind": kind, "metadata": [] })))
}

fn key_views(dnssec: &Dnssec) -> Vec<KeyView> {
    let Some(signer) = &dnssec.signer else { return Vec::new() };
    let is_entry = |key: &Dnskey| key.flags & SECURE_ENTRY_POINT != 0;
    let split = signer.keys.iter().any(|key| !is_entry(key));
    let keys = signer.keys.iter().map(|key| {
        let Dnskey { key_tag, flags, algorithm, public_key } = key;
        let keytype = match (is_entry(key), split) {
            (true, true) => "ksk",
            (true, false) => "csk",
            (false, _) => "zsk",
        };
        let ds = dnssec.ds.iter().filter(|ds| ds.key_tag == *key_tag).map(ds_text);
        KeyView {
            kind: "Cryptokey",
            id: *key_tag,
            keytype,
            active: true,
            published: true,
            flags: *flags,
            algorithm: algorithm_name(*algorithm),
            dnskey: format!("{flags} 3 {algorithm} {public_key}"),
            ds: ds.collect(),
        }
    });
    keys.collect()
}

fn ds_text(ds: &Ds) -> String {
    format!("{} {} {} {}", ds.key_tag, ds.algorithm, ds.digest_type, ds.digest.to_ascii_lowercase())
}

/// Returns the mnemonic of an algorithm (IANA, "DNS Security Algorithm Numbers"), or the number of an algorithm that is
/// no longer in use.
fn algorithm_name(algorithm: u8) -> String {
    let name = match algorithm {
        8 => "RSASHA256",
        10 => "RSASHA512",
        13 => "ECDSAP256SHA256",
        14 => "ECDSAP384SHA384",
        15 => "ED25519",
        16 => "ED448",
        other => return other.to_string(),
    };
    name.to_owned()
}
