//! An rrset of a request, and its conversion to a change of the zone.

use dns::{Hosting, InvalidSet, OwnerName, Rdata, RecordSet, RecordType, RrsetPatch, ZoneName};
use serde::Deserialize;

use super::error::unprocessable;
use crate::problem::Problem;

const UNAMBIGUOUS: &str = "names end with a dot, and TXT records are in quotation marks";

#[derive(Debug, Deserialize)]
pub(super) struct RrsetBody {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    ttl: Option<u32>,
    changetype: Option<String>,
    /// The records. Absent if the client sends only comments, which the service does not store.
    records: Option<Vec<RecordBody>>,
}

#[derive(Debug, Deserialize)]
struct RecordBody {
    content: String,
    disabled: Option<bool>,
}

impl RrsetBody {
    /// Converts the rrset to a change. Returns `None` if there is nothing to change. `default_change` is the change
    /// type of an rrset that has none.
    pub(super) fn into_patch(
        self,
        zone: &ZoneName,
        hosting: &Hosting,
        default_change: Option<&str>,
    ) -> Result<Option<RrsetPatch>, Problem> {
        // PowerDNS requires the trailing dot, because the name is ambiguous without it.
        if !self.name.ends_with('.') {
            return Err(unprocessable(format!("DNS Name '{}' is not canonical", self.name)));
        }
        let change = self.changetype.as_deref().or(default_change).map(str::to_ascii_uppercase);
        let requested = match (change.as_deref(), &self.records) {
            (Some("DELETE"), _) => [].as_slice(),
            (Some("REPLACE"), None) => return Ok(None),
            (Some("REPLACE"), Some(records)) => records,
            (Some(_), _) => return Err(self.rejected("Changetype not understood")),
            (None, _) => return Err(self.rejected("Key 'changetype' not present or not a String")),
        };
        if requested.iter().any(|record| record.disabled == Some(true)) {
            return Err(self.rejected("disabled records are not supported; omit them"));
        }
        // Count before parsing, because parsing thousands of records takes long.
        if requested.len() > RecordSet::MAX_RECORDS {
            return Err(self.rejected(&InvalidSet::TooManyRecords(requested.len()).to_string()));
        }
        let records: Vec<String> = requested.iter().map(|record| record.content.clone()).collect();
        let is_apex = OwnerName::parse(&self.name, zone).is_ok_and(|owner| owner.is_apex());
        if is_apex && !records.is_empty() && self.is_unchanged_managed_rrset(zone, hosting, &records)? {
            return Ok(None);
        }
        if let Ok(kind) = self.kind.parse::<RecordType>()
            && let Some(record) = records.iter().find(|record| !is_unambiguous(kind, record, zone))
        {
            return Err(self.rejected(&format!("Not in expected format: '{record}': {UNAMBIGUOUS}")));
        }
        Ok(Some(RrsetPatch { name: self.name, kind: self.kind, ttl: self.ttl.map(i64::from), records }))
    }

    /// Returns whether the rrset is the zone's unchanged NS or SOA rrset.
    fn is_unchanged_managed_rrset(
        &self,
        zone: &ZoneName,
        hosting: &Hosting,
        records: &[String],
    ) -> Result<bool, Problem> {
        match self.kind.parse() {
            Ok(RecordType::Soa) => Ok(is_own_soa(zone, hosting, records)),
            Ok(RecordType::Ns) if is_own_ns(zone, hosting, self.ttl, records) => Ok(true),
            Ok(RecordType::Ns) => {
                let (ttl, managed) = (hosting.ns().0, hosting.nameservers().join("., "));
                Err(self.rejected(&format!("the platform manages this rrset: {managed}., with a TTL of {ttl}")))
            }
            _ => Ok(false),
        }
    }

    fn rejected(&self, message: &str) -> Problem {
        unprocessable(format!("RRset {} IN {}: {message}", self.name, self.kind))
    }
}

/// Returns whether a record has no relative name and no unquoted text. PowerDNS rejects such records. `/v1` completes the
/// name with the zone, and makes a string of each word of the text. An invalid record is rejected later.
fn is_unambiguous(kind: RecordType, record: &str, zone: &ZoneName) -> bool {
    let elsewhere = ZoneName::new_unchecked("relative.invalid".to_owned());
    let parse = |zone: &ZoneName| Rdata::parse(kind, record, zone).ok();
    let is_absolute = parse(zone).zip(parse(&elsewhere)).is_none_or(|(here, elsewhere)| here == elsewhere);
    let text = record.trim();
    let is_quoted = kind != RecordType::Txt || text.starts_with('"') && text.ends_with('"');
    is_absolute && is_quoted
}

fn is_own_ns(zone: &ZoneName, hosting: &Hosting, ttl: Option<u32>, records: &[String]) -> bool {
    let (managed_ttl, managed) = hosting.ns();
    let requested: Result<Vec<Rdata>, _> =
        records.iter().map(|text| Rdata::parse(RecordType::Ns, text, zone)).collect();
    let requested =
        requested.map(|requested| RecordSet::new(OwnerName::apex(), RecordType::Ns, managed_ttl, requested).records);
    ttl.is_none_or(|ttl| ttl == managed_ttl) && requested.is_ok_and(|requested| requested == managed)
}

/// Returns whether the records are the zone's own SOA. Ignores the serial, which only the platform changes.
fn is_own_soa(zone: &ZoneName, hosting: &Hosting, records: &[String]) -> bool {
    let without_serial = |text: &str| {
        let fields = text.split_whitespace().enumerate().filter(|(index, _)| *index != 2);
        fields.map(|(_, field)| field.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let managed = hosting.soa(zone, 0).1.rdata().text(RecordType::Soa);
    matches!(records, [requested] if without_serial(requested) == without_serial(&managed))
}
