//! Reading a zone file.

use super::entry::{Entries, Entry};
use super::sets::Sets;
use super::{Fault, MOST_FAULTS, Zonefile};
use crate::name::labels;
use crate::record::field::seconds;
use crate::record::lexer::Word;
use crate::{OwnerName, Rdata, RecordSet, RecordType, Soa, ZoneName};

/// What a nameserver that signs makes by itself.
const DNSSEC: [&str; 8] = ["RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY", "CDS", "CDNSKEY", "SIG"];

/// Reads a zone file. Names are relative to the zone until `$ORIGIN` says otherwise.
///
/// A record without a TTL has that of `$TTL`; without one, the last that was stated (RFC 1035 section 5.1), the minimum
/// of the SOA, or 300 seconds. Records of one set must agree (RFC 2181 section 5.2). A record that stands there twice
/// counts once, and so may the SOA, which transfers that were written down end with.
///
/// # Errors
/// Everything that is wrong with it, in the order of lines: at most 100 faults.
pub fn read(zone: &ZoneName, text: &str) -> Result<Zonefile, Vec<Fault>> {
    let mut reader = Reader::new(zone);
    let mut faults = Vec::new();
    for entry in Entries::new(text) {
        let fault = match entry {
            Ok(entry) => reader.entry(&entry).err().map(|message| (entry.line, message)),
            Err((line, fault)) => Some((line, format!("the line {fault}"))),
        };
        faults.extend(fault.map(|(line, message)| Fault { line, message }));
        // No later line can be among those that are told.
        if faults.len() == MOST_FAULTS {
            break;
        }
    }
    let (sets, more) = reader.sets.finish();
    faults.extend(more);
    faults.sort_by_key(|fault| fault.line);
    faults.truncate(MOST_FAULTS);
    if faults.is_empty() { Ok(Zonefile { sets, soa: reader.soa }) } else { Err(faults) }
}

struct Reader<'z> {
    zone: &'z ZoneName,
    /// On the wire.
    origin: Vec<u8>,
    owner: Owner,
    ttl: Ttl,
    soa: Option<Soa>,
    sets: Sets,
}

/// The name that an indented entry has.
enum Owner {
    Missing,
    /// It was told already.
    Faulty,
    Name(OwnerName),
}

/// The TTLs that one without may have, the nearest first.
#[derive(Default)]
struct Ttl {
    directive: Option<u32>,
    stated: Option<u32>,
    minimum: Option<u32>,
}

/// What stands before a record's data.
struct Head<'a, 'w> {
    ttl: Option<u32>,
    kind: RecordType,
    data: &'w [Word<'a>],
}

impl<'z> Reader<'z> {
    fn new(zone: &'z ZoneName) -> Self {
        let (owner, ttl) = (Owner::Missing, Ttl::default());
        Self { zone, origin: zone.wire().into_bytes(), owner, ttl, soa: None, sets: Sets::default() }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let mut words = entry.words.as_slice();
        if !entry.is_indented
            && let Some((first, rest)) = words.split_first()
        {
            match first.bare() {
                Some(directive) if directive.starts_with('$') => return self.directive(directive, rest),
                _ => self.owner = Owner::Faulty,
            }
            self.owner = Owner::Name(self.owner(*first)?);
            words = rest;
        }
        let head = Head::read(words)?;
        let data =
            Rdata::read(head.kind, head.data, &self.origin).map_err(|why| format!("the {} record {why}", head.kind))?;
        self.ttl.stated = head.ttl.or(self.ttl.stated);
        let owner = match &self.owner {
            Owner::Missing => return Err("the line begins with white space, but there is no name before it".into()),
            Owner::Faulty => return Ok(()),
            Owner::Name(name) => name.clone(),
        };
        if head.kind == RecordType::Soa {
            return self.soa(&owner, &data);
        }
        let ttl = head.ttl.unwrap_or_else(|| self.ttl.implied());
        // The zone's own nameservers are the platform's, whatever a file says of them.
        let is_passed_over = head.kind == RecordType::Ns && owner.is_apex();
        if !is_passed_over && !RecordSet::TTL.contains(&ttl) {
            let (least, most) = (RecordSet::TTL.start(), RecordSet::TTL.end());
            return Err(format!("the record has a TTL of {ttl} seconds, where {least} to {most} are possible"));
        }
        self.sets.add(entry.line, owner, head.kind, ttl, data)
    }

    fn owner(&self, word: Word<'_>) -> Result<OwnerName, String> {
        let name = word.bare().ok_or("the name is in quotation marks")?;
        labels::read(name, &self.origin)
            .map_err(Into::into)
            .and_then(|wire| OwnerName::from_wire(&wire, self.zone))
            .map_err(|why| format!("the name {why}: {}", word.shown()))
    }

    fn directive(&mut self, directive: &str, words: &[Word<'_>]) -> Result<(), String> {
        let directive = directive.to_ascii_uppercase();
        match (directive.as_str(), words) {
            ("$ORIGIN", [name]) => {
                let read = name.bare().map(|text| labels::read(text, &self.origin));
                self.origin = read
                    .ok_or("the name behind $ORIGIN is in quotation marks")?
                    .map_err(|why| format!("the name behind $ORIGIN {why}: {}", name.shown()))?;
            }
            ("$TTL", [ttl]) => {
                let read = ttl.bare().and_then(seconds);
                self.ttl.directive = Some(read.ok_or_else(|| format!("$TTL is no time: {}", ttl.shown()))?);
            }
            ("$ORIGIN" | "$TTL", _) => return Err(format!("{directive} takes one word")),
            ("$INCLUDE", _) => return Err("$INCLUDE is not followed; put the other file's lines here".into()),
            ("$GENERATE", _) => return Err("$GENERATE is not supported; write the records out".into()),
            _ => return Err("the line begins with a $ but is neither $ORIGIN nor $TTL".into()),
        }
        Ok(())
    }

    fn soa(&mut self, owner: &OwnerName, data: &Rdata) -> Result<(), String> {
        if !owner.is_apex() {
            return Err(format!("the SOA record is not at the zone's own name but at {}", owner.as_str()));
        }
        let soa = Soa::from_rdata(data);
        if self.soa.is_some() && self.soa != soa {
            return Err("there is another SOA record before".into());
        }
        self.ttl.minimum = soa.as_ref().map(|soa| soa.minimum);
        self.soa = soa;
        Ok(())
    }
}

impl Ttl {
    fn implied(&self) -> u32 {
        self.directive.or(self.stated).or(self.minimum).unwrap_or(RecordSet::DEFAULT_TTL)
    }
}

impl<'a, 'w> Head<'a, 'w> {
    /// `[ttl] [class] type data`, or the class before the TTL.
    fn read(words: &'w [Word<'a>]) -> Result<Self, String> {
        let (mut ttl, mut has_class, mut rest) = (None, false, words);
        while let Some((word, behind)) = rest.split_first() {
            let text = word.bare().ok_or("the type is in quotation marks")?;
            rest = behind;
            match class(text) {
                Some(true) if !has_class => has_class = true,
                Some(false) => return Err(format!("the class is {text}, where only IN is possible")),
                _ if ttl.is_none() && text.starts_with(|c: char| c.is_ascii_digit()) => {
                    ttl = Some(seconds(text).ok_or_else(|| format!("the TTL is no time: {}", word.shown()))?);
                }
                _ => {
                    let kind = RecordType::from_mnemonic(text).ok_or_else(|| unsupported(*word))?;
                    return Ok(Self { ttl, kind, data: rest });
                }
            }
        }
        Err("the line ends before a type".into())
    }
}

/// Whether a word is a class, and then whether it is the internet's.
fn class(text: &str) -> Option<bool> {
    let name = text.to_ascii_uppercase();
    match name.as_str() {
        "IN" | "CLASS1" => Some(true),
        "CH" | "CS" | "HS" | "ANY" | "NONE" => Some(false),
        _ => name.strip_prefix("CLASS").map(|_| false),
    }
}

fn unsupported(word: Word<'_>) -> String {
    let name = word.text.to_ascii_uppercase();
    if DNSSEC.contains(&name.as_str()) {
        return format!("the type {name} is of DNSSEC, whose records the nameservers make; leave it out");
    }
    format!("the type is not supported: {}", word.shown())
}
