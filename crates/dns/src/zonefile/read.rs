//! The zone file parser.

use super::entry::{Entries, Entry};
use super::sets::SetBuilder;
use super::{LineError, MAX_ERRORS, Zonefile};
use crate::name::labels;
use crate::record::field::seconds;
use crate::record::lexer::Word;
use crate::{OwnerName, Rdata, RecordSet, RecordType, Soa, ZoneName, ZoneSize};

/// The types that a signing nameserver creates itself.
const DNSSEC_TYPES: [&str; 8] = ["RRSIG", "NSEC", "NSEC3", "NSEC3PARAM", "DNSKEY", "CDS", "CDNSKEY", "SIG"];

/// Decodes a zone file.
///
/// # Errors
/// Returns the lines that are not UTF-8 text, up to 100.
pub fn decode(bytes: Vec<u8>) -> Result<String, Vec<LineError>> {
    String::from_utf8(bytes).map_err(|error| {
        let lines = (1..).zip(error.as_bytes().split(|byte| *byte == b'\n'));
        let invalid = lines.filter(|(_, line)| std::str::from_utf8(line).is_err());
        let errors = invalid.map(|(line, _)| LineError { line, message: "the line is not UTF-8 text".to_owned() });
        errors.take(MAX_ERRORS).collect()
    })
}

/// Parses a zone file. Names are relative to the zone unless `$ORIGIN` sets another origin.
///
/// A record without a TTL gets the first of these that exists: `$TTL`, the last stated TTL (RFC 1035 section 5.1), the
/// SOA minimum, or 300 seconds. All records of a set must have the same TTL (RFC 2181 section 5.2). Duplicate records
/// count once. The SOA may appear twice, because saved transfers end with it.
///
/// # Errors
/// Returns all errors in line order, up to 100.
pub fn read(zone: &ZoneName, text: &str) -> Result<Zonefile, Vec<LineError>> {
    read_within(zone, text, ZoneSize { rrset_count: u32::MAX, bytes: u64::MAX })
}

/// Parses a zone file, like [`read`]. Ends at the line that exceeds this size, or the number of records of an rrset:
/// a short line can be a record of more than 255 bytes, so a file could otherwise use 50 times its size in memory.
///
/// # Errors
/// Returns the errors of [`read`], up to the line at which the parser ends.
pub fn read_within(zone: &ZoneName, text: &str, max_size: ZoneSize) -> Result<Zonefile, Vec<LineError>> {
    let mut reader = Parser::new(zone, max_size);
    let mut errors = Vec::new();
    for entry in Entries::new(text) {
        let error = match entry {
            Ok(entry) => reader.entry(&entry).err().map(|message| (entry.line, message)),
            Err((line, error)) => Some((line, format!("the line {error}"))),
        };
        errors.extend(error.map(|(line, message)| LineError { line, message }));
        // Stop here, because errors of later lines would not be reported, or because the records would fill the memory.
        if errors.len() == MAX_ERRORS || reader.sets.is_full() {
            break;
        }
    }
    let (sets, more) = reader.sets.finish();
    errors.extend(more);
    errors.sort_by_key(|error| error.line);
    errors.truncate(MAX_ERRORS);
    if errors.is_empty() { Ok(Zonefile { sets, soa: reader.soa }) } else { Err(errors) }
}

struct Parser<'z> {
    zone: &'z ZoneName,
    /// The origin in wire format.
    origin: Vec<u8>,
    owner: CurrentOwner,
    ttl: DefaultTtl,
    soa: Option<Soa>,
    sets: SetBuilder,
}

/// The owner of indented entries.
enum CurrentOwner {
    Missing,
    /// The owner is invalid, and the error was already reported.
    Invalid,
    Name(OwnerName),
}

/// The default TTLs, in order of precedence.
#[derive(Default)]
struct DefaultTtl {
    directive: Option<u32>,
    stated: Option<u32>,
    minimum: Option<u32>,
}

/// The TTL and the type of a record, and the unparsed words of its data.
struct RecordHeader<'a, 'w> {
    ttl: Option<u32>,
    kind: RecordType,
    data: &'w [Word<'a>],
}

impl<'z> Parser<'z> {
    fn new(zone: &'z ZoneName, max_size: ZoneSize) -> Self {
        let (owner, ttl) = (CurrentOwner::Missing, DefaultTtl::default());
        Self { zone, origin: zone.wire().into_bytes(), owner, ttl, soa: None, sets: SetBuilder::new(max_size) }
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), String> {
        let mut words = entry.words.as_slice();
        if !entry.is_indented
            && let Some((first, rest)) = words.split_first()
        {
            match first.bare() {
                Some(directive) if directive.starts_with('$') => return self.directive(directive, rest),
                _ => self.owner = CurrentOwner::Invalid,
            }
            self.owner = CurrentOwner::Name(self.owner(*first)?);
            words = rest;
        }
        let head = RecordHeader::read(words)?;
        let data = Rdata::parse_words(head.kind, head.data, &self.origin)
            .map_err(|error| format!("the {} record {error}", head.kind))?;
        self.ttl.stated = head.ttl.or(self.ttl.stated);
        let owner = match &self.owner {
            CurrentOwner::Missing => {
                return Err("the line begins with white space, but no line before it has a name".into());
            }
            CurrentOwner::Invalid => return Ok(()),
            CurrentOwner::Name(name) => name.clone(),
        };
        if head.kind == RecordType::Soa {
            return self.soa(&owner, &data);
        }
        let ttl = head.ttl.unwrap_or_else(|| self.ttl.implied());
        // The import ignores apex NS records, so their TTL is not checked.
        let is_ignored = head.kind == RecordType::Ns && owner.is_apex();
        if !is_ignored && !RecordSet::TTL.contains(&ttl) {
            let (min, max) = (RecordSet::TTL.start(), RecordSet::TTL.end());
            return Err(format!("the record has a TTL of {ttl} seconds; it must be from {min} to {max}"));
        }
        self.sets.add(entry.line, owner, head.kind, ttl, data)
    }

    fn owner(&self, word: Word<'_>) -> Result<OwnerName, String> {
        let name = word.bare().ok_or("the name is in quotation marks")?;
        labels::parse(name, &self.origin)
            .map_err(Into::into)
            .and_then(|wire| OwnerName::from_wire(&wire, self.zone))
            .map_err(|error| format!("the name {error}: {}", word.truncated()))
    }

    fn directive(&mut self, directive: &str, words: &[Word<'_>]) -> Result<(), String> {
        let directive = directive.to_ascii_uppercase();
        match (directive.as_str(), words) {
            ("$ORIGIN", [name]) => {
                let read = name.bare().map(|text| labels::parse(text, &self.origin));
                self.origin = read
                    .ok_or("the name after $ORIGIN is in quotation marks")?
                    .map_err(|error| format!("the name after $ORIGIN {error}: {}", name.truncated()))?;
            }
            ("$TTL", [ttl]) => {
                let read = ttl.bare().and_then(seconds);
                self.ttl.directive =
                    Some(read.ok_or_else(|| format!("$TTL is not a valid time: {}", ttl.truncated()))?);
            }
            ("$ORIGIN" | "$TTL", _) => return Err(format!("{directive} takes one value")),
            ("$INCLUDE", _) => return Err("$INCLUDE is not supported; insert the lines of the other file".into()),
            ("$GENERATE", _) => return Err("$GENERATE is not supported; list the records".into()),
            _ => return Err("the line begins with an unknown directive; only $ORIGIN and $TTL are supported".into()),
        }
        Ok(())
    }

    fn soa(&mut self, owner: &OwnerName, data: &Rdata) -> Result<(), String> {
        if !owner.is_apex() {
            return Err(format!("the SOA record is not at the zone apex but at {}", owner.as_str()));
        }
        let soa = Soa::from_rdata(data);
        if self.soa.is_some() && self.soa != soa {
            return Err("the file has a different SOA record before this line".into());
        }
        self.ttl.minimum = soa.as_ref().map(|soa| soa.minimum);
        self.soa = soa;
        Ok(())
    }
}

impl DefaultTtl {
    fn implied(&self) -> u32 {
        self.directive.or(self.stated).or(self.minimum).unwrap_or(RecordSet::DEFAULT_TTL)
    }
}

impl<'a, 'w> RecordHeader<'a, 'w> {
    /// Reads the words `[ttl] [class] type data`. The class may also come before the TTL.
    fn read(words: &'w [Word<'a>]) -> Result<Self, String> {
        let (mut ttl, mut has_class, mut rest) = (None, false, words);
        while let Some((word, tail)) = rest.split_first() {
            let text = word.bare().ok_or("the type is in quotation marks")?;
            rest = tail;
            match class(text) {
                Some(true) if !has_class => has_class = true,
                Some(false) => return Err(format!("the class is {text}; only IN is supported")),
                _ if ttl.is_none() && text.starts_with(|c: char| c.is_ascii_digit()) => {
                    ttl = Some(
                        seconds(text).ok_or_else(|| format!("the TTL is not a valid time: {}", word.truncated()))?,
                    );
                }
                _ => {
                    let kind = RecordType::from_mnemonic(text).ok_or_else(|| unsupported(*word))?;
                    return Ok(Self { ttl, kind, data: rest });
                }
            }
        }
        Err("the line has no record type".into())
    }
}

/// Returns whether a class is IN. Returns `None` if the word is not a class.
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
    if DNSSEC_TYPES.contains(&name.as_str()) {
        return format!("nameservers create records of the DNSSEC type {name}; remove the record");
    }
    format!("the type is not supported: {}", word.truncated())
}
