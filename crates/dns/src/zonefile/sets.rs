//! Records as they come, put into sets.

use std::collections::HashMap;

use super::Fault;
use crate::{OwnerName, Rdata, RecordSet, RecordType};

#[derive(Default)]
pub(super) struct Sets {
    sets: Vec<(u32, RecordSet)>,
    /// The types at each name, by their places in `sets`.
    names: HashMap<OwnerName, Vec<usize>>,
}

impl Sets {
    /// Adds a record that stands at the line.
    pub fn add(&mut self, line: u32, owner: OwnerName, kind: RecordType, ttl: u32, data: Rdata) -> Result<(), String> {
        let places = self.names.entry(owner.clone()).or_default();
        for place in places.iter() {
            if let Some((first, set)) = self.sets.get_mut(*place).filter(|(_, set)| set.kind == kind) {
                if set.ttl != ttl {
                    let why =
                        format!("the record has a TTL of {ttl}, and line {first} has {} for the same set", set.ttl);
                    return Err(why);
                }
                set.records.push(data);
                return Ok(());
            }
        }
        places.push(self.sets.len());
        self.sets.push((line, RecordSet { owner, kind, ttl, records: vec![data] }));
        Ok(())
    }

    /// The sets in the order of their first lines, and what is wrong with them.
    pub fn finish(self) -> (Vec<(u32, RecordSet)>, Vec<Fault>) {
        let mut faults = Vec::new();
        let sets: Vec<_> = self.sets.into_iter().map(|(line, set)| (line, ordered(set))).collect();
        for (line, set) in &sets {
            let message = set.check().err().map(|why| format!("the set {} {} {why}", set.owner.as_str(), set.kind));
            faults.extend(message.map(|message| Fault { line: *line, message }));
        }
        for places in self.names.values() {
            let here: Vec<_> = places.iter().filter_map(|place| sets.get(*place)).collect();
            faults.extend(beside(&here));
        }
        (sets, faults)
    }
}

fn ordered(set: RecordSet) -> RecordSet {
    let RecordSet { owner, kind, ttl, records } = set;
    RecordSet::new(owner, kind, ttl, records)
}

/// A CNAME stands alone (RFC 1034 section 3.6.2). It is told where the second of the two stands.
fn beside(sets: &[&(u32, RecordSet)]) -> Option<Fault> {
    let (cname, set) = sets.iter().find(|(_, set)| set.kind == RecordType::Cname)?;
    let (other, another) = sets.iter().find(|(_, set)| set.kind != RecordType::Cname)?;
    let message = format!(
        "there is a CNAME beside the type {} at {}: see lines {} and {}",
        another.kind,
        set.owner.as_str(),
        cname.min(other),
        cname.max(other)
    );
    (!set.owner.is_apex()).then_some(Fault { line: *cname.max(other), message })
}
