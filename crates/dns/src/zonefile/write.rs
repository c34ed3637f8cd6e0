//! The zone file writer.

use crate::record::Rdata;
use crate::{RecordSet, RecordType, Soa, ZoneName};

/// Formats a zone file, which [`read`](super::read) and nameservers parse to the same records.
///
/// The SOA comes first, then the names in canonical order (RFC 4034 section 6.1) with the NS set first at each name.
/// Each line has one record with its TTL.
#[must_use]
pub fn write<'a>(zone: &ZoneName, soa: &Soa, sets: impl IntoIterator<Item = &'a RecordSet>) -> String {
    let mut text = directives(zone);
    line(&mut text, "@", Soa::TTL, RecordType::Soa, &soa.rdata());
    write_sets(&mut text, sets);
    text
}

/// Returns the lines before the records.
pub(crate) fn directives(zone: &ZoneName) -> String {
    format!("$ORIGIN {}.\n$TTL {}\n", zone.as_str(), RecordSet::DEFAULT_TTL)
}

/// Appends the lines of rrsets in the order of [`write`].
pub(crate) fn write_sets<'a>(text: &mut String, sets: impl IntoIterator<Item = &'a RecordSet>) {
    let mut sets: Vec<_> = sets.into_iter().collect();
    sets.sort_by_cached_key(|set| (set.owner.canonical_key(), order_of(set.kind)));
    for set in sets {
        for record in &set.records {
            line(text, set.owner.as_str(), set.ttl, set.kind, record);
        }
    }
}

/// Returns the sort key of a type: SOA comes first, then NS, then the other types by number.
fn order_of(kind: RecordType) -> (u8, u16) {
    let rank = match kind {
        RecordType::Soa => 0,
        RecordType::Ns => 1,
        _ => 2,
    };
    (rank, kind.code())
}

fn line(text: &mut String, owner: &str, ttl: u32, kind: RecordType, record: &Rdata) {
    text.push_str(&format!("{owner}\t{ttl}\tIN\t{kind}\t{}\n", record.text(kind)));
}
