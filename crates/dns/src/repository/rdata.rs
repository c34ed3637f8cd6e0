//! The data of an rrset in one column: each record's after its length in two bytes, as in a message.

use store::{Error, Result};

use crate::Rdata;

/// Every record of a set fits: it was checked against [`crate::RecordSet::MOST_BYTES`].
pub(super) fn pack(records: &[Rdata]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(records.iter().map(|record| record.wire().len() + 2).sum());
    for record in records {
        let length = u16::try_from(record.wire().len()).unwrap_or(u16::MAX);
        packed.extend_from_slice(&length.to_be_bytes());
        packed.extend_from_slice(record.wire());
    }
    packed
}

pub(super) fn unpack(mut packed: &[u8]) -> Result<Vec<Rdata>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = packed.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length));
        let (record, rest) = rest.split_at_checked(length).ok_or_else(|| Error::inconsistent("rdata is cut short"))?;
        records.push(Rdata::stored(record.to_vec()));
        packed = rest;
    }
    if packed.is_empty() { Ok(records) } else { Err(Error::inconsistent("rdata has a byte too many")) }
}
