//! Rrsets.

use crate::{OwnerName, Rdata, RecordType};

/// An rrset: all records of a name and a type, with their TTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordSet {
    pub owner: OwnerName,
    pub kind: RecordType,
    /// The TTL in seconds.
    pub ttl: u32,
    /// The records in canonical order (RFC 4034 section 6.3), without duplicates. Never empty.
    pub records: Vec<Rdata>,
}

/// A rule that an rrset breaks. The message completes "the set …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSet {
    /// RFC 1034 section 3.6.2: a name with a CNAME has no other records, but the apex always has SOA and NS records.
    #[error("is a CNAME at the zone apex, which has other records")]
    ApexCname,
    #[error("has more than one CNAME")]
    SeveralCnames,
    /// RFC 4592 section 4.2 does not define NS records at a wildcard, and BIND does not load them.
    #[error("is an NS set at a wildcard name")]
    WildcardNs,
    #[error("has no records")]
    Empty,
    #[error("has {0} records; the limit is {most}", most = RecordSet::MAX_RECORDS)]
    TooManyRecords(usize),
    #[error("has {0} bytes of data; the limit is {most}", most = RecordSet::MAX_BYTES)]
    TooLarge(usize),
}

impl RecordSet {
    /// The allowed TTLs, in seconds (contract section 6).
    pub const TTL: std::ops::RangeInclusive<u32> = 30..=86_400;
    /// The default TTL, in seconds.
    pub const DEFAULT_TTL: u32 = 300;
    /// The maximum number of records.
    pub const MAX_RECORDS: usize = 100;
    /// The maximum size of the data in bytes. It fits in one DNS message.
    pub const MAX_BYTES: usize = 48 * 1024;

    /// Sorts the records and removes duplicates.
    #[must_use]
    pub fn new(owner: OwnerName, kind: RecordType, ttl: u32, mut records: Vec<Rdata>) -> Self {
        records.sort_unstable();
        records.dedup();
        Self { owner, kind, ttl, records }
    }

    /// Checks the rules within the rrset, but not conflicts with other types at the name.
    ///
    /// # Errors
    /// Returns the first broken rule.
    pub fn check(&self) -> Result<(), InvalidSet> {
        let bytes = self.records.iter().map(|record| record.wire().len()).sum();
        let is_wildcard = self.owner.as_str().split('.').next() == Some("*");
        match (self.kind, self.records.len()) {
            (RecordType::Cname, _) if self.owner.is_apex() => Err(InvalidSet::ApexCname),
            (RecordType::Ns, _) if is_wildcard => Err(InvalidSet::WildcardNs),
            (_, 0) => Err(InvalidSet::Empty),
            (RecordType::Cname, 2..) => Err(InvalidSet::SeveralCnames),
            (_, count) if count > Self::MAX_RECORDS => Err(InvalidSet::TooManyRecords(count)),
            _ if bytes > Self::MAX_BYTES => Err(InvalidSet::TooLarge(bytes)),
            _ => Ok(()),
        }
    }
}
