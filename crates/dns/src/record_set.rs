//! All records of a name and a type.

use crate::{OwnerName, Rdata, RecordType};

/// An rrset: all records of a name and a type, and how long they may be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSet {
    pub owner: OwnerName,
    pub kind: RecordType,
    /// In seconds.
    pub ttl: u32,
    /// In canonical order (RFC 4034 section 6.3), without duplicates, never empty.
    pub records: Vec<Rdata>,
}

/// Why nameservers would not serve a set, or not well; in words that complete "the set …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSet {
    /// RFC 1034 section 3.6.2: a CNAME stands alone, and at the apex there are the SOA and the NS.
    #[error("is a CNAME at the zone's own name, which has other records")]
    ApexCname,
    #[error("has more than one CNAME")]
    SeveralCnames,
    /// RFC 4592 section 4.2 leaves it undefined, and BIND does not load it.
    #[error("is an NS at a wildcard")]
    WildcardNs,
    #[error("has no records")]
    Empty,
    #[error("has {0} records, where {most} are possible", most = RecordSet::MOST)]
    Many(usize),
    #[error("has {0} bytes of data, where {most} are possible", most = RecordSet::MOST_BYTES)]
    Large(usize),
}

impl RecordSet {
    /// The shortest and the longest time to live, in seconds (contract section 6).
    pub const TTL: std::ops::RangeInclusive<u32> = 30..=86_400;
    /// The time to live where none is given, in seconds.
    pub const DEFAULT_TTL: u32 = 300;
    /// The most records of a set.
    pub const MOST: usize = 100;
    /// The most bytes that the data of a set may have, so that it fits in a message.
    pub const MOST_BYTES: usize = 48 * 1024;

    /// Puts the records in order and drops duplicates.
    #[must_use]
    pub fn new(owner: OwnerName, kind: RecordType, ttl: u32, mut records: Vec<Rdata>) -> Self {
        records.sort_unstable();
        records.dedup();
        Self { owner, kind, ttl, records }
    }

    /// Checks what the records have to keep together, and with their owner. What else is at the name is not seen here.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), InvalidSet> {
        let bytes = self.records.iter().map(|record| record.wire().len()).sum();
        let is_wildcard = self.owner.as_str().split('.').next() == Some("*");
        match (self.kind, self.records.len()) {
            (RecordType::Cname, _) if self.owner.is_apex() => Err(InvalidSet::ApexCname),
            (RecordType::Ns, _) if is_wildcard => Err(InvalidSet::WildcardNs),
            (_, 0) => Err(InvalidSet::Empty),
            (RecordType::Cname, 2..) => Err(InvalidSet::SeveralCnames),
            (_, count) if count > Self::MOST => Err(InvalidSet::Many(count)),
            _ if bytes > Self::MOST_BYTES => Err(InvalidSet::Large(bytes)),
            _ => Ok(()),
        }
    }
}
