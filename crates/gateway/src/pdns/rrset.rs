//! An rrset as tools send it, and what of it a zone can take.

use dns::{Hosting, OwnerName, Rdata, RecordSet, RecordType, RrsetPatch, ZoneName};
use serde::Deserialize;

use super::refusal::unprocessable;
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
pub(super) struct SentRrset {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    ttl: Option<u32>,
    changetype: Option<String>,
    /// None leaves the records as they are, where comments alone are sent: they are not kept here.
    records: Option<Vec<SentRecord>>,
}

#[derive(Debug, Deserialize)]
struct SentRecord {
    content: String,
    disabled: Option<bool>,
}

impl SentRrset {
    /// What it asks for; none for what is so already, or not kept here. `implied` is the change where none is stated.
    pub(super) fn wanted(
        self,
        zone: &ZoneName,
        hosting: &Hosting,
        implied: Option<&str>,
    ) -> Result<Option<RrsetPatch>, Problem> {
        // PowerDNS wants the dot, and without it a name could be meant in two ways.
        if !self.name.ends_with('.') {
            return Err(unprocessable(format!("DNS Name '{}' is not canonical", self.name)));
        }
        let change = self.changetype.as_deref().or(implied).map(str::to_ascii_uppercase);
        let sent = match (change.as_deref(), &self.records) {
            (Some("DELETE"), _) => [].as_slice(),
            (Some("REPLACE"), None) => return Ok(None),
            (Some("REPLACE"), Some(records)) => records,
            (Some(_), _) => return Err(self.refused("Changetype not understood")),
            (None, _) => return Err(self.refused("Key 'changetype' not present or not a String")),
        };
        if sent.iter().any(|record| record.disabled == Some(true)) {
            return Err(self.refused("disabled records are not kept here; leave them out"));
        }
        let records: Vec<String> = sent.iter().map(|record| record.content.clone()).collect();
        let is_apex = OwnerName::parse(&self.name, zone).is_ok_and(|owner| owner.is_apex());
        if is_apex && !records.is_empty() && self.is_as_managed(zone, hosting, &records)? {
            return Ok(None);
        }
        Ok(Some(RrsetPatch { name: self.name, kind: self.kind, ttl: self.ttl, records }))
    }

    /// Whether it is the zone's NS or SOA, sent back as it is.
    fn is_as_managed(&self, zone: &ZoneName, hosting: &Hosting, records: &[String]) -> Result<bool, Problem> {
        match self.kind.parse() {
            Ok(RecordType::Soa) => Ok(is_own_soa(zone, hosting, records)),
            Ok(RecordType::Ns) if is_own_ns(zone, hosting, self.ttl, records) => Ok(true),
            Ok(RecordType::Ns) => {
                let (ttl, own) = (hosting.ns().0, hosting.nameservers().join("., "));
                Err(self.refused(&format!("the platform manages it: {own}., with a TTL of {ttl}")))
            }
            _ => Ok(false),
        }
    }

    fn refused(&self, message: &str) -> Problem {
        unprocessable(format!("RRset {} IN {}: {message}", self.name, self.kind))
    }
}

fn is_own_ns(zone: &ZoneName, hosting: &Hosting, ttl: Option<u32>, records: &[String]) -> bool {
    let (own_ttl, own) = hosting.ns();
    let sent: Result<Vec<Rdata>, _> = records.iter().map(|text| Rdata::parse(RecordType::Ns, text, zone)).collect();
    let sent = sent.map(|sent| RecordSet::new(OwnerName::apex(), RecordType::Ns, own_ttl, sent).records);
    ttl.is_none_or(|ttl| ttl == own_ttl) && sent.is_ok_and(|sent| sent == own)
}

/// But for the serial, which nobody but the platform counts.
fn is_own_soa(zone: &ZoneName, hosting: &Hosting, records: &[String]) -> bool {
    let but_serial = |text: &str| {
        let fields = text.split_whitespace().enumerate().filter(|(place, _)| *place != 2);
        fields.map(|(_, field)| field.to_ascii_lowercase()).collect::<Vec<_>>()
    };
    let own = hosting.soa(zone, 0).1.rdata().text(RecordType::Soa);
    matches!(records, [sent] if but_serial(sent) == but_serial(&own))
}
