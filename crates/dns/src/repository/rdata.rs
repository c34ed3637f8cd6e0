//! The column format of an rrset's data: each record follows its two-byte length, as in a message.

use store::{Error, Result};

use crate::{OwnerName, Rdata};

/// Packs records into the column format. Each length fits in two bytes, because [`crate::RecordSet::MAX_BYTES`] limits
/// the set.
pub(super) fn pack(records: &[Rdata]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(records.iter().map(record_len).sum());
    for record in records {
        let length = u16::try_from(record.wire().len()).unwrap_or(u16::MAX);
        packed.extend_from_slice(&length.to_be_bytes());
        packed.extend_from_slice(record.wire());
    }
    packed
}

/// Returns the length of [`pack`]'s result.
pub(crate) fn packed_len(records: &[Rdata]) -> u64 {
    records.iter().map(record_len).sum::<usize>() as u64
}

/// Returns the bytes of an rrset, as in [`super::ZoneSize`].
pub(crate) fn rrset_bytes(owner: &OwnerName, records: &[Rdata]) -> u64 {
    owner.as_str().len() as u64 + packed_len(records)
}

fn record_len(record: &Rdata) -> usize {
    record.wire().len() + 2
}

pub(super) fn unpack(mut packed: &[u8]) -> Result<Vec<Rdata>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (record, rest) = rest.split_at_checked(length).ok_or_else(|| Error::inconsistent("rdata is truncated"))?;
        records.push(Rdata::new_unchecked(record.to_vec()));
        packed = rest;
    }
    if packed.is_empty() { Ok(records) } else { Err(Error::inconsistent("rdata has a trailing byte")) }
}
