//! What tools send: whole objects, and fields of other versions of PowerDNS. What is not named here is passed over, as
//! there.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use dns::{Hosting, RrsetPatch, ZoneName};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::refusal::{MALFORMED, unprocessable};
use super::rrset::SentRrset;
use crate::http::{Describe, Extract, Operation, parse_json, read_in_time};
use crate::problem::Problem;

/// The largest body, in bytes: that of PowerDNS's `webserver-max-bodysize`.
const LARGEST: usize = 2 * 1024 * 1024;

/// A JSON body, whatever its content type: tools leave it out.
#[derive(Debug)]
pub(super) struct Sent<T>(pub(super) T);

/// The parameters of the query.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Asked {
    pub(super) zone: Option<String>,
    rrsets: Option<String>,
    pub(super) rrset_name: Option<String>,
    pub(super) rrset_type: Option<String>,
}

/// A zone to create.
#[derive(Debug, Deserialize)]
pub(super) struct SentZone {
    pub(super) name: String,
    kind: Option<String>,
    nameservers: Option<Vec<String>>,
    rrsets: Option<Vec<SentRrset>>,
    pub(super) dnssec: Option<bool>,
    nsec3param: Option<String>,
    /// A zone file.
    zone: Option<String>,
}

/// What a zone is to be, beside what it holds.
#[derive(Debug, Deserialize)]
pub(super) struct SentChange {
    kind: Option<String>,
    pub(super) dnssec: Option<bool>,
    nsec3param: Option<String>,
    rrsets: Option<Vec<SentRrset>>,
}

/// What a zone is to hold.
#[derive(Debug, Deserialize)]
pub(super) struct SentRrsets {
    rrsets: Option<Vec<SentRrset>>,
}

impl<T> Describe for Sent<T> {
    fn describe(operation: &mut Operation) {
        operation.body(LARGEST, json!({ "required": true, "content": { "*/*": { "schema": {} } } }));
    }
}

impl<T: DeserializeOwned> Extract for Sent<T> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let bytes = read_in_time(request, payload, LARGEST).await?;
        let value = parse_json(&bytes).map_err(|error| Problem::new(&MALFORMED, format!("Bad Request: {error}")))?;
        let read = serde_path_to_error::deserialize(value);
        read.map(Self).map_err(|error| unprocessable(format!("{}: {}", error.path(), error.inner())))
    }
}

impl Describe for Asked {
    fn describe(_: &mut Operation) {}
}

impl Extract for Asked {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        serde_urlencoded::from_str(request.query_string()).map_err(|error| unprocessable(error.to_string()))
    }
}

impl Asked {
    /// Whether rrsets are to be shown.
    pub(super) fn shows_rrsets(&self) -> bool {
        self.rrsets.as_deref() != Some("false")
    }
}

impl SentZone {
    /// The rrsets that the new zone is to hold.
    pub(super) fn wanted(&mut self, zone: &ZoneName, hosting: &Hosting) -> Result<Vec<RrsetPatch>, Problem> {
        hosted_kind(self.kind.as_deref())?;
        plain_nsec3(self.nsec3param.as_deref())?;
        if self.zone.as_ref().is_some_and(|file| !file.is_empty()) {
            return Err(unprocessable("a zone file is not taken here; send rrsets"));
        }
        let bare = |name: &String| name.trim_end_matches('.').to_ascii_lowercase();
        let mut sent: Vec<String> = self.nameservers.iter().flatten().map(bare).collect();
        let mut own = hosting.nameservers().to_vec();
        sent.sort_unstable();
        own.sort_unstable();
        if !sent.is_empty() && sent != own {
            let own = own.join(", ");
            let message = format!("the nameservers of every zone are the platform's: {own}; leave nameservers empty");
            return Err(unprocessable(message));
        }
        let rrsets = self.rrsets.take().unwrap_or_default();
        let each = rrsets.into_iter().map(|rrset| rrset.wanted(zone, hosting, Some("REPLACE")));
        each.filter_map(Result::transpose).collect()
    }
}

impl SentChange {
    /// Refuses what would have to be kept, and is not; DNSSEC is.
    pub(super) fn check(&self) -> Result<(), Problem> {
        hosted_kind(self.kind.as_deref())?;
        plain_nsec3(self.nsec3param.as_deref())?;
        if self.rrsets.is_some() {
            return Err(unprocessable("rrsets are changed with PATCH"));
        }
        Ok(())
    }
}

impl SentRrsets {
    pub(super) fn wanted(self, zone: &ZoneName, hosting: &Hosting) -> Result<Vec<RrsetPatch>, Problem> {
        let rrsets = self.rrsets.ok_or_else(|| unprocessable("No rrsets given in update request"))?;
        let each = rrsets.into_iter().map(|rrset| rrset.wanted(zone, hosting, None));
        each.filter_map(Result::transpose).collect()
    }
}

fn hosted_kind(kind: Option<&str>) -> Result<(), Problem> {
    match kind.map(str::to_ascii_lowercase).as_deref() {
        None | Some("" | "native" | "master" | "primary") => Ok(()),
        Some(kind) => Err(unprocessable(format!("zones of the kind {kind} are not hosted here; make it Master"))),
    }
}

fn plain_nsec3(parameters: Option<&str>) -> Result<(), Problem> {
    match parameters {
        None | Some("") => Ok(()),
        Some(_) => Err(unprocessable("nsec3param is for the signing nameserver to choose; leave it empty")),
    }
}
