//! Requests. Clients send whole objects, and also fields of other versions of PowerDNS. Unknown fields are ignored, as
//! in PowerDNS.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::{Hosting, RecordSet, RrsetPatch, StoredSet, ZoneName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::error::{MALFORMED, unprocessable};
use super::rrset::RrsetBody;
use crate::http::{Describe, Extract, Operation, parse_json, read_in_time};
use crate::problem::Problem;

/// The largest body in bytes. It equals PowerDNS's `webserver-max-bodysize`.
const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;

/// A JSON body of any content type, because clients omit the content type.
#[derive(Debug)]
pub(super) struct LenientJson<T>(pub(super) T);

/// The query parameters.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ZoneQuery {
    pub(super) zone: Option<String>,
    rrsets: Option<String>,
    rrset_name: Option<String>,
    rrset_type: Option<String>,
}

/// A zone to create.
#[derive(Debug, Deserialize)]
pub(super) struct NewZoneBody {
    pub(super) name: String,
    kind: Option<String>,
    nameservers: Option<Vec<String>>,
    rrsets: Option<Vec<RrsetBody>>,
    pub(super) dnssec: Option<bool>,
    nsec3param: Option<String>,
    /// The content of the zone as a zone file.
    zone: Option<String>,
}

/// A change of a zone's settings.
#[derive(Debug, Deserialize)]
pub(super) struct ZoneChangeBody {
    kind: Option<String>,
    pub(super) dnssec: Option<bool>,
    nsec3param: Option<String>,
    rrsets: Option<Vec<RrsetBody>>,
}

/// A change of a zone's rrsets.
#[derive(Debug, Deserialize)]
pub(super) struct RrsetsBody {
    rrsets: Option<Vec<RrsetBody>>,
}

impl<T> Describe for LenientJson<T> {
    fn describe(operation: &mut Operation) {
        operation.body(MAX_BODY_BYTES, json!({ "required": true, "content": { "*/*": { "schema": {} } } }));
    }
}

impl<T: DeserializeOwned> Extract for LenientJson<T> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let bytes = read_in_time(request, payload, MAX_BODY_BYTES).await?;
        let value = parse_json(&bytes).map_err(|error| Problem::new(&MALFORMED, format!("Bad Request: {error}")))?;
        let read = serde_path_to_error::deserialize(value);
        read.map(Self).map_err(|error| unprocessable(format!("{}: {}", error.path(), error.inner())))
    }
}

impl Describe for ZoneQuery {
    fn describe(_: &mut Operation) {}
}

impl Extract for ZoneQuery {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        serde_urlencoded::from_str(request.query_string()).map_err(|error| unprocessable(error.to_string()))
    }
}

impl ZoneQuery {
    /// Returns whether the response contains rrsets.
    pub(super) fn shows_rrsets(&self) -> bool {
        self.rrsets.as_deref() != Some("false")
    }

    /// Returns whether the query requests an rrset.
    pub(super) fn matches(&self, zone: &ZoneName, stored: &StoredSet) -> bool {
        let RecordSet { owner, kind, .. } = &stored.set;
        let is_same = |name: &str| name.trim_end_matches('.').eq_ignore_ascii_case(&owner.absolute(zone));
        self.rrset_name.as_deref().is_none_or(is_same)
            && self.rrset_type.as_deref().is_none_or(|requested| requested.eq_ignore_ascii_case(kind.as_str()))
    }
}

impl NewZoneBody {
    /// Returns the rrsets of the new zone.
    pub(super) fn take_patches(&mut self, zone: &ZoneName, hosting: &Hosting) -> Result<Vec<RrsetPatch>, Problem> {
        check_kind(self.kind.as_deref())?;
        check_nsec3param(self.nsec3param.as_deref())?;
        if self.zone.as_ref().is_some_and(|file| !file.is_empty()) {
            return Err(unprocessable("zone files are not supported here; send rrsets"));
        }
        let normalized = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
        let mut requested: Vec<String> = self.nameservers.iter().flatten().map(normalized).collect();
        let mut platform = hosting.nameservers().to_vec();
        requested.sort_unstable();
        platform.sort_unstable();
        if !requested.is_empty() && requested != platform {
            let platform = platform.join(", ");
            let message = format!("every zone has the platform's nameservers: {platform}; leave nameservers empty");
            return Err(unprocessable(message));
        }
        let rrsets = self.rrsets.take().unwrap_or_default();
        let patches = rrsets.into_iter().map(|rrset| rrset.into_patch(zone, hosting, Some("REPLACE")));
        patches.filter_map(Result::transpose).collect()
    }
}

impl ZoneChangeBody {
    /// Rejects a change of any setting other than DNSSEC, because the service stores no others.
    pub(super) fn check(&self) -> Result<(), Problem> {
        check_kind(self.kind.as_deref())?;
        check_nsec3param(self.nsec3param.as_deref())?;
        if self.rrsets.is_some() {
            return Err(unprocessable("PUT does not change rrsets; use PATCH"));
        }
        Ok(())
    }
}

impl RrsetsBody {
    pub(super) fn into_patches(self, zone: &ZoneName, hosting: &Hosting) -> Result<Vec<RrsetPatch>, Problem> {
        let rrsets = self.rrsets.ok_or_else(|| unprocessable("No rrsets given in update request"))?;
        let patches = rrsets.into_iter().map(|rrset| rrset.into_patch(zone, hosting, None));
        patches.filter_map(Result::transpose).collect()
    }
}

fn check_kind(kind: Option<&str>) -> Result<(), Problem> {
    match kind.map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "native" | "master" | "primary") => Ok(()),
        Some(kind) => Err(unprocessable(format!("zones of the kind {kind} are not supported; use Master"))),
    }
}

fn check_nsec3param(parameters: Option<&str>) -> Result<(), Problem> {
    match parameters {
        None | Some("") => Ok(()),
        Some(_) => Err(unprocessable("the signing nameserver chooses nsec3param; leave it empty")),
    }
}
