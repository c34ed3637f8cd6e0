//! The DNSSEC keys of a zone, as of the last signer check, and PowerDNS's zone metadata, which is always empty.
//!
//! The signing nameserver manages the keys. Some clients switch DNSSEC by creating and deleting a key, so the creation
//! of an active key turns DNSSEC on, and the deletion of a secure entry point turns it off.

use std::num::ParseIntError;
use std::str::FromStr;

use ::dns::{Dnskey, Dnssec, DnssecState, DnssecSwitch, Ds};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::unprocessable;
use super::policy::ApiKeyZone;
use super::request::LenientJson;
use super::response::{PdnsCreated, PdnsResponse};
use crate::authority::role::{Admin, Viewer};
use crate::authority::scope::{DnsRead, DnsWrite};
use crate::http::{NoContent, Path, Routes, path_parameters, text_path_parameters};
use crate::problem::Problem;
use crate::require::RequireDns;

/// The flag of a secure entry point (RFC 4034 section 2.1.1).
const SECURE_ENTRY_POINT: u16 = 1;
/// The flags of a key that is a secure entry point.
const ENTRY_KEY: u16 = 257;

/// The reason why a request about keys is refused.
const KEYS_ARE_MANAGED: &str = "the signing nameserver manages the keys; create an active and published csk or ksk to \
                                turn DNSSEC on, and delete a csk or ksk to turn it off";

const KEYS: &str = "/api/v1/servers/localhost/zones/{zone}/cryptokeys";
const KEY: &str = "/api/v1/servers/localhost/zones/{zone}/cryptokeys/{key}";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("keys", "Zone keys and metadata.");
    area.get("list", KEYS, list);
    area.post("create", KEYS, create);
    area.put("change", KEY, change);
    area.delete("delete", KEY, delete);
    area.get("metadata", "/api/v1/servers/localhost/zones/{zone}/metadata", metadata);
    area.get("metadata_of", "/api/v1/servers/localhost/zones/{zone}/metadata/{kind}", metadata_of);
}

/// The id of a key: its key tag.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyId(u16);

impl FromStr for KeyId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

path_parameters! {
    KeyId as i32: "The id of the key.", 4711;
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

/// A key to create.
#[derive(Debug, Deserialize)]
struct NewKeyBody {
    keytype: Option<String>,
    active: Option<bool>,
    published: Option<bool>,
    privatekey: Option<String>,
}

/// A change of a key.
#[derive(Debug, Deserialize)]
struct KeyChangeBody {
    active: Option<bool>,
    published: Option<bool>,
}

async fn create(
    at: ApiKeyZone<Admin, DnsWrite>,
    zones: RequireDns,
    LenientJson(new): LenientJson<NewKeyBody>,
) -> Result<PdnsCreated<KeyView>, Problem> {
    new.check()?;
    let (org, zone) = (at.org.id, at.zone.as_str());
    zones.dnssec_switch(&at.actor, org, zone, DnssecSwitch { enabled: true }).await?;
    let dnssec = zones.dnssec(org, zone).await?;
    let key = key_views(&dnssec).into_iter().next();
    Ok(PdnsCreated(key.unwrap_or_else(|| KeyView::unobserved(&dnssec))))
}

async fn change(
    at: ApiKeyZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(key): Path<KeyId>,
    LenientJson(change): LenientJson<KeyChangeBody>,
) -> Result<NoContent, Problem> {
    let keys = key_views(&zones.dnssec(at.org.id, at.zone.as_str()).await?);
    if change.published == Some(false) || !keys.iter().any(|it| it.id == key.0) {
        return Err(unprocessable(format!("Could not change the key {}: {KEYS_ARE_MANAGED}", key.0)));
    }
    if change.active == Some(false) { switch_off(&at, &zones, &keys, key).await } else { Ok(NoContent) }
}

async fn delete(
    at: ApiKeyZone<Admin, DnsWrite>,
    zones: RequireDns,
    Path(key): Path<KeyId>,
) -> Result<NoContent, Problem> {
    let keys = key_views(&zones.dnssec(at.org.id, at.zone.as_str()).await?);
    switch_off(&at, &zones, &keys, key).await
}

/// Turns DNSSEC off instead of deleting a secure entry point. There are two while the signing nameserver replaces one.
async fn switch_off(
    at: &ApiKeyZone<Admin, DnsWrite>,
    zones: &RequireDns,
    keys: &[KeyView],
    key: KeyId,
) -> Result<NoContent, Problem> {
    if !keys.iter().any(|it| it.id == key.0 && it.flags & SECURE_ENTRY_POINT != 0) {
        return Err(unprocessable(format!("Could not delete the key {}: {KEYS_ARE_MANAGED}", key.0)));
    }
    zones.dnssec_switch(&at.actor, at.org.id, at.zone.as_str(), DnssecSwitch { enabled: false }).await?;
    Ok(NoContent)
}

impl NewKeyBody {
    fn check(&self) -> Result<(), Problem> {
        let keytype = self.keytype.as_deref().map(str::to_ascii_lowercase);
        let is_entry = matches!(keytype.as_deref(), Some("csk" | "ksk"));
        let has_private_key = self.privatekey.as_ref().is_some_and(|key| !key.is_empty());
        if !is_entry || self.active != Some(true) || self.published == Some(false) || has_private_key {
            return Err(unprocessable(format!("Could not create the key: {KEYS_ARE_MANAGED}")));
        }
        Ok(())
    }
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

impl KeyView {
    /// Returns a key for a signed zone whose keys were not observed yet.
    fn unobserved(dnssec: &Dnssec) -> Self {
        Self {
            kind: "Cryptokey",
            id: 0,
            keytype: "csk",
            active: true,
            published: true,
            flags: ENTRY_KEY,
            algorithm: String::new(),
            dnskey: String::new(),
            ds: dnssec.ds.iter().map(ds_text).collect(),
        }
    }
}

/// Returns the keys, the secure entry points first: clients delete the first active key to turn DNSSEC off. A zone has
/// no keys while DNSSEC is off, and at least one while it is on.
fn key_views(dnssec: &Dnssec) -> Vec<KeyView> {
    if dnssec.state == DnssecState::Off {
        return Vec::new();
    }
    let Some(signer) = dnssec.signer.as_ref().filter(|signer| !signer.keys.is_empty()) else {
        return vec![KeyView::unobserved(dnssec)];
    };
    let is_entry = |key: &Dnskey| key.flags & SECURE_ENTRY_POINT != 0;
    let split = signer.keys.iter().any(|key| !is_entry(key));
    let (entries, others): (Vec<&Dnskey>, Vec<&Dnskey>) = signer.keys.iter().partition(|key| is_entry(key));
    let keys = entries.into_iter().chain(others).map(|key| {
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
