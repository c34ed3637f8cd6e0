//! What a name server knows, and what it answers to a question.

use std::collections::HashMap;

use hickory_resolver::proto::op::{Edns, Message, Metadata, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, NS, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

const TTL: u32 = 300;
/// Aliases that are followed: some lead in a circle.
const ALIASES: usize = 16;

/// Records by name and type. Whatever is not in here does not exist.
#[derive(Debug, Default)]
pub(super) struct Zone(HashMap<(Name, RecordType), Vec<RData>>);

impl Zone {
    pub fn set(&mut self, name: Name, kind: RecordType, data: Vec<RData>) {
        if data.is_empty() {
            self.0.remove(&(name, kind));
        } else {
            self.0.insert((name, kind), data);
        }
    }

    /// The whole answer, however long.
    pub fn answer(&self, request: &Message) -> Message {
        let mut answer = request.clone().into_response();
        answer.metadata = Metadata::response_from_request(&request.metadata);
        answer.metadata.authoritative = true;
        answer.metadata.recursion_available = true;
        answer.edns = request.edns.as_ref().map(|_| Edns::new());
        match request.queries.first() {
            Some(query) => self.fill(&mut answer, query),
            None => answer.metadata.response_code = ResponseCode::FormErr,
        }
        answer
    }

    fn fill(&self, answer: &mut Message, query: &Query) {
        let (mut name, kind) = (query.name().clone(), query.query_type());
        if kind != RecordType::CNAME {
            for _ in 0..ALIASES {
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

    /// A name exists when something below it does (RFC 8020).
    fn exists(&self, name: &Name) -> bool {
        self.0.keys().any(|(owner, _)| name.zone_of(owner))
    }
}

/// An absolute name.
pub(super) fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).unwrap();
    name.set_fqdn(true);
    name
}

/// A record's data from its text: an address, a name, for SOA the two names and the serial, for TXT all of it.
pub(super) fn data(kind: RecordType, text: &str) -> RData {
    match kind {
        RecordType::A => RData::A(A(text.parse().unwrap())),
        RecordType::AAAA => RData::AAAA(AAAA(text.parse().unwrap())),
        RecordType::CNAME => RData::CNAME(CNAME(name(text))),
        RecordType::NS => RData::NS(NS(name(text))),
        // One string at least (RFC 1035 section 3.3.14).
        RecordType::TXT if text.is_empty() => RData::TXT(TXT::from_bytes(vec![b""])),
        RecordType::TXT => RData::TXT(TXT::from_bytes(text.as_bytes().chunks(255).collect())),
        RecordType::SOA => {
            let mut words = text.split_ascii_whitespace();
            let mut word = || words.next().unwrap();
            let (primary, mailbox, serial) = (name(word()), name(word()), word().parse().unwrap());
            RData::SOA(SOA::new(primary, mailbox, serial, 3600, 600, 86400, 60))
        }
        _ => panic!("{kind} is not known here"),
    }
}
