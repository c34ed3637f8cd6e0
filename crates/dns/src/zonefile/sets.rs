//! Groups records into sets.

use std::collections::HashMap;
use std::slice;

use super::LineError;
use crate::repository::{packed_len, rrset_bytes};
use crate::{OwnerName, Rdata, RecordSet, RecordType, ZoneSize};

pub(super) struct SetBuilder {
    sets: Vec<(u32, RecordSet)>,
    /// The indexes in `sets` of each name.
    names: HashMap<OwnerName, Vec<usize>>,
    /// The bytes of the sets, as in [`ZoneSize`].
    bytes: u64,
    max_size: ZoneSize,
    is_full: bool,
}

impl SetBuilder {
    pub fn new(max_size: ZoneSize) -> Self {
        Self { sets: Vec::new(), names: HashMap::new(), bytes: 0, max_size, is_full: false }
    }

    /// Returns whether a limit is exceeded, so that further records would only use memory.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Adds a record from this line. Ignores a duplicate.
    pub fn add(&mut self, line: u32, owner: OwnerName, kind: RecordType, ttl: u32, data: Rdata) -> Result<(), String> {
        let indexes = self.names.entry(owner.clone()).or_default();
        for index in indexes.iter() {
            if let Some((first, set)) = self.sets.get_mut(*index).filter(|(_, set)| set.kind == kind) {
                if set.ttl != ttl {
                    let error =
                        format!("the record has a TTL of {ttl}, but line {first} has {} for the same set", set.ttl);
                    return Err(error);
                }
                let Err(position) = set.records.binary_search(&data) else { return Ok(()) };
                let bytes = packed_len(slice::from_ref(&data));
                set.records.insert(position, data);
                // `finish` returns the error.
                self.is_full |= set.records.len() > RecordSet::MAX_RECORDS;
                return self.count(bytes);
            }
        }
        let records = vec![data];
        let bytes = rrset_bytes(&owner, &records);
        indexes.push(self.sets.len());
        self.sets.push((line, RecordSet { owner, kind, ttl, records }));
        self.count(bytes)
    }

    /// Adds to the bytes, and checks the size of the file.
    fn count(&mut self, bytes: u64) -> Result<(), String> {
        self.bytes += bytes;
        let ZoneSize { rrset_count, bytes } = self.max_size;
        let error = if self.sets.len() as u64 > u64::from(rrset_count) {
            format!("the file has more than {rrset_count} rrsets up to this line")
        } else if self.bytes > bytes {
            format!("the file has more than {bytes} bytes of names and data up to this line")
        } else {
            return Ok(());
        };
        self.is_full = true;
        Err(error)
    }

    /// Returns the sets in the order of their first lines, and the errors of the sets.
    pub fn finish(self) -> (Vec<(u32, RecordSet)>, Vec<LineError>) {
        let mut errors = Vec::new();
        for (line, set) in &self.sets {
            let message = set.check().err().map(|error| format!("the set {} {} {error}", set.owner.as_str(), set.kind));
            errors.extend(message.map(|message| LineError { line: *line, message }));
        }
        for indexes in self.names.values() {
            let here: Vec<_> = indexes.iter().filter_map(|index| self.sets.get(*index)).collect();
            errors.extend(check_cname(&here));
        }
        (self.sets, errors)
    }
}

/// Returns an error for a CNAME at a name with other types (RFC 1034 section 3.6.2). The error names the later of the
/// two lines that conflict.
fn check_cname(sets: &[&(u32, RecordSet)]) -> Option<LineError> {
    let (cname, set) = sets.iter().find(|(_, set)| set.kind == RecordType::Cname)?;
    let (other, another) = sets.iter().find(|(_, set)| set.kind != RecordType::Cname)?;
    let message = format!(
        "a CNAME and the type {} are both at {}: see lines {} and {}",
        another.kind,
        set.owner.as_str(),
        cname.min(other),
        cname.max(other)
    );
    (!set.owner.is_apex()).then_some(LineError { line: *cname.max(other), message })
}
