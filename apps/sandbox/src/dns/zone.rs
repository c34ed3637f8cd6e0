//! The records of the name server, and its responses.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv4Addr;

use hickory_resolver::proto::op::{Edns, Message, Metadata, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CAA, CNAME, MX, NS, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

const TTL: u32 = 300;
/// The limit of followed aliases, which may form a cycle.
const MAX_ALIASES: usize = 16;

/// Records by name and type.
#[derive(Debug, Default)]
pub(super) struct Zone(HashMap<(Name, RecordType), Vec<RData>>);

/// An invalid part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidRecord(pub(crate) &'static str);

impl fmt::Display for InvalidRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the record is invalid", self.0)
    }
}

impl std::error::Error for InvalidRecord {}

impl Zone {
    pub fn add(&mut self, name: Name, kind: RecordType, data: RData) {
        let all = self.0.entry((name, kind)).or_default();
        if !all.contains(&data) {
            all.push(data);
        }
    }

    pub fn records(&self) -> Vec<[String; 3]> {
        let text = |(name, kind): &(Name, RecordType), data: &RData| {
            let text = match data {
                RData::TXT(txt) => txt.txt_data.iter().map(|string| String::from_utf8_lossy(string)).collect(),
                other => other.to_string(),
            };
            [name.to_string(), kind.to_string(), text]
        };
        let mut records: Vec<_> =
            self.0.iter().flat_map(|(key, all)| all.iter().map(move |it| text(key, it))).collect();
        records.sort();
        records
    }

    pub fn set(&mut self, name: Name, kind: RecordType, data: Vec<RData>) {
        if data.is_empty() {
            self.0.remove(&(name, kind));
        } else {
            self.0.insert((name, kind), data);
        }
    }

    /// Returns the response without truncating it.
    pub fn answer(&self, request: &Message) -> Message {
        let mut answer = request.clone().into_response();
        answer.metadata = Metadata::response_from_request(&request.metadata);
        answer.metadata.authoritative = true;
        answer.metadata.recursion_available = true;
        answer.edns = request.edns.as_ref().map(|_| Edns::new());
        match request.queries.first() {
            Some(query) => self.add_records(&mut answer, query),
            None => answer.metadata.response_code = ResponseCode::FormErr,
        }
        answer
    }

    /// Returns whether a delegation contains the answer to a query: the zone has no such record, and the name or one above
    /// it has NS records.
    pub fn is_delegated(&self, query: &Query) -> bool {
        let is_known = |kind| self.get(query.name(), kind).is_some();
        !is_known(query.query_type())
            && !is_known(RecordType::CNAME)
            && self.0.keys().any(|(owner, kind)| *kind == RecordType::NS && owner.zone_of(query.name()))
    }

    fn add_records(&self, answer: &mut Message, query: &Query) {
        let (mut name, kind) = (query.name().clone(), query.query_type());
        if kind != RecordType::CNAME {
            for _ in 0..MAX_ALIASES {
                let Some([RData::CNAME(target)]) = self.get(&name, RecordType::CNAME) else { break };
                let target = target.clone();
                let owner = std::mem::replace(&mut name, target.0.clone());
                answer.add_answer(Record::from_rdata(owner, TTL, RData::CNAME(target)));
            }
        }
        if let Some(data) = self.get(&name, kind) {
            answer.add_answers(data.iter().map(|data| Record::from_rdata(name.clone(), TTL, data.clone())));
            return;
        }
        if is_local(&name) {
            if kind == RecordType::A {
                answer.add_answer(Record::from_rdata(name, TTL, RData::A(A(Ipv4Addr::LOCALHOST))));
            }
            return;
        }
        if !self.exists(&name) {
            answer.metadata.response_code = ResponseCode::NXDomain;
        }
        let mut apex = name;
        while !apex.is_root() {
            if let Some([soa]) = self.get(&apex, RecordType::SOA) {
                answer.add_authority(Record::from_rdata(apex, TTL, soa.clone()));
                break;
            }
            apex = apex.base_name();
        }
    }

    fn get(&self, name: &Name, kind: RecordType) -> Option<&[RData]> {
        self.0.get(&(name.clone(), kind)).map(Vec::as_slice)
    }

    /// Returns whether a name exists. A name exists if a name below it does (RFC 8020).
    fn exists(&self, name: &Name) -> bool {
        self.0.keys().any(|(owner, _)| name.zone_of(owner))
    }
}

/// Returns whether the name is `localhost` or below it.
fn is_local(name: &Name) -> bool {
    name.iter().next_back().is_some_and(|label| label.eq_ignore_ascii_case(b"localhost"))
}

/// Parses an absolute name.
pub(super) fn parse_name(text: &str) -> Result<Name, InvalidRecord> {
    let name = Some(text.trim()).filter(|name| !name.is_empty()).and_then(|name| Name::from_ascii(name).ok());
    let mut name = name.ok_or(InvalidRecord("a name"))?;
    name.set_fqdn(true);
    Ok(name)
}

/// Parses a record's data: an address or a name, the preference and a name for MX, two names and the serial for SOA, the
/// name of a certificate authority for CAA, or the whole text for TXT.
pub(super) fn parse_data(kind: RecordType, text: &str) -> Result<RData, InvalidRecord> {
    const ADDRESS: InvalidRecord = InvalidRecord("the address");
    Ok(match kind {
        RecordType::A => RData::A(A(text.trim().parse().map_err(|_| ADDRESS)?)),
        RecordType::AAAA => RData::AAAA(AAAA(text.trim().parse().map_err(|_| ADDRESS)?)),
        RecordType::CNAME => RData::CNAME(CNAME(parse_name(text)?)),
        RecordType::NS => RData::NS(NS(parse_name(text)?)),
        RecordType::MX => {
            let (preference, exchange) = text.trim().split_once(' ').ok_or(InvalidRecord("the MX"))?;
            let preference = preference.parse().map_err(|_| InvalidRecord("the preference"))?;
            RData::MX(MX::new(preference, parse_name(exchange)?))
        }
        // TXT data has at least one string (RFC 1035 section 3.3.14).
        RecordType::TXT if text.is_empty() => RData::TXT(TXT::from_bytes(vec![b""])),
        RecordType::TXT => RData::TXT(TXT::from_bytes(text.as_bytes().chunks(255).collect())),
        RecordType::SOA => parse_soa(text)?,
        RecordType::CAA => parse_caa(text)?,
        _ => return Err(InvalidRecord("the type")),
    })
}

/// Parses the value of the property `issue`; the empty text forbids every certificate authority.
fn parse_caa(text: &str) -> Result<RData, InvalidRecord> {
    let mut issuer = if text.is_empty() { None } else { Some(parse_name(text)?) };
    // The domain of an issuer has no trailing dot (RFC 8659 section 4.2).
    if let Some(issuer) = &mut issuer {
        issuer.set_fqdn(false);
    }
    Ok(RData::CAA(CAA::new_issue(false, issuer, Vec::new())))
}

fn parse_soa(text: &str) -> Result<RData, InvalidRecord> {
    let [primary, mailbox, serial] = *text.split_ascii_whitespace().collect::<Vec<_>>() else {
        return Err(InvalidRecord("the SOA"));
    };
    let serial = serial.parse().map_err(|_| InvalidRecord("the serial"))?;
    Ok(RData::SOA(SOA::new(parse_name(primary)?, parse_name(mailbox)?, serial, 3600, 600, 86400, 60)))
}
