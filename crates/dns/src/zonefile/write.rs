//! The zone file writer.

use crate::record::Rdata;
use crate::{RecordSet, RecordType, Soa, ZoneName};

/// Formats a zone file, which [`read`](super::read) and nameservers parse to the same records.
///
/// The SOA comes first, then the names in canonical order (RFC 4034 section 6.1) with the NS set first at each name.
/// Each line has one record with its TTL.
#[must_use]
pub fn write<'a>(zone: &ZoneName, soa: &Soa, sets: impl IntoIterator<Item = &'a RecordSet>) -> String {
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_cached_key(|set| (set.owner.canonical_key(), set.kind != RecordType::Ns, set.kind.code()));
    let mut text = format!("$ORIGIN {}.\n$TTL {}\n", zone.as_str(), RecordSet::DEFAULT_TTL);
    line(&mut text, "@", Soa::TTL, RecordType::Soa, &soa.rdata());
    for set in sets {
        for record in &set.records {
            line(&mut text, set.owner.as_str(), set.ttl, set.kind, record);
        }
    }
    text
}

fn line(text: &mut String, owner: &str, ttl: u32, kind: RecordType, record: &Rdata) {
    text.push_str(&format!("{owner}\t{ttl}\tIN\t{kind}\t{}\n", record.text(kind)));
}
