//! Groups records into sets.

use std::collections::HashMap;

use super::LineError;
use crate::{OwnerName, Rdata, RecordSet, RecordType};

#[derive(Default)]
pub(super) struct SetBuilder {
    sets: Vec<(u32, RecordSet)>,
    /// The indexes in `sets` of each name.
    names: HashMap<OwnerName, Vec<usize>>,
}

impl SetBuilder {
    /// Adds a record from this line.
    pub fn add(&mut self, line: u32, owner: OwnerName, kind: RecordType, ttl: u32, data: Rdata) -> Result<(), String> {
        let indexes = self.names.entry(owner.clone()).or_default();
        for index in indexes.iter() {
            if let Some((first, set)) = self.sets.get_mut(*index).filter(|(_, set)| set.kind == kind) {
                if set.ttl != ttl {
                    let error =
                        format!("the record has a TTL of {ttl}, but line {first} has {} for the same set", set.ttl);
                    return Err(error);
                }
                set.records.push(data);
                return Ok(());
            }
        }
        indexes.push(self.sets.len());
        self.sets.push((line, RecordSet { owner, kind, ttl, records: vec![data] }));
        Ok(())
    }

    /// Returns the sets in the order of their first lines, and the errors of the sets.
    pub fn finish(self) -> (Vec<(u32, RecordSet)>, Vec<LineError>) {
        let mut errors = Vec::new();
        let sets: Vec<_> = self.sets.into_iter().map(|(line, set)| (line, sorted(set))).collect();
        for (line, set) in &sets {
            let message = set.check().err().map(|error| format!("the set {} {} {error}", set.owner.as_str(), set.kind));
            errors.extend(message.map(|message| LineError { line: *line, message }));
        }
        for indexes in self.names.values() {
            let here: Vec<_> = indexes.iter().filter_map(|index| sets.get(*index)).collect();
            errors.extend(check_cname(&here));
        }
        (sets, errors)
    }
}

fn sorted(set: RecordSet) -> RecordSet {
    let RecordSet { owner, kind, ttl, records } = set;
    RecordSet::new(owner, kind, ttl, records)
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
