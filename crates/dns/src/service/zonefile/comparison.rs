//! The comparison of a zone file with the stored rrsets. It keeps only the rrsets that differ.

use std::collections::HashMap;

use super::super::Result;
use super::super::edit::RrsetChange;
use crate::error::DnsError;
use crate::repository::{StoredSet, ZoneRecord};
use crate::zonefile::{LineError, Zonefile};
use crate::{OwnerName, RecordSet, RecordType};

pub(super) struct Comparison {
    /// The rrsets of the file in file order, each with its line. `None` replaces an rrset that the zone already has.
    sets: Vec<Option<(u32, RecordSet)>>,
    indexes: HashMap<(OwnerName, RecordType), usize>,
    /// Rrsets of users that the file omits.
    removed: Vec<RrsetChange>,
    /// The stored rrsets that a change of the zone depends on.
    stored: Vec<StoredSet>,
    errors: Vec<LineError>,
}

impl Comparison {
    pub(super) fn new(file: Zonefile) -> Self {
        let is_apex_ns = |set: &RecordSet| set.kind == RecordType::Ns && set.owner.is_apex();
        let sets: Vec<_> = file.sets.into_iter().filter(|(_, set)| !is_apex_ns(set)).map(Some).collect();
        let keys = sets.iter().flatten().enumerate();
        let indexes = keys.map(|(index, (_, set))| ((set.owner.clone(), set.kind), index)).collect();
        Self { sets, indexes, removed: Vec::new(), stored: Vec::new(), errors: Vec::new() }
    }

    /// Compares a stored rrset.
    pub(super) fn add(&mut self, zone: &ZoneRecord, stored: StoredSet) {
        let key = (stored.set.owner.clone(), stored.set.kind);
        let requested = self.indexes.get(&key).and_then(|index| self.sets.get_mut(*index));
        match (requested, stored.managed_by) {
            // An equal rrset does not change. It cannot conflict with the changes either, because the rrsets of the
            // file do not conflict with each other.
            (Some(requested), _) if requested.as_ref().is_some_and(|(_, set)| *set == stored.set) => *requested = None,
            (Some(requested), Some(managed_by)) => {
                let (owner, kind) = key;
                let error = DnsError::Managed { name: owner.absolute(&zone.name), kind: kind.as_str(), managed_by };
                let line = requested.as_ref().map(|(line, _)| *line).unwrap_or_default();
                self.errors.push(LineError { line, message: error.to_string() });
            }
            (requested, managed_by) => {
                if requested.is_none() && managed_by.is_none() {
                    self.removed.push(RrsetChange::delete(key.0, key.1));
                }
                self.stored.push(stored);
            }
        }
    }

    /// Returns the changes that the file requests, the lines of the first changes, and the stored rrsets that a plan of
    /// the changes needs.
    pub(super) fn into_changes(mut self) -> Result<(Vec<u32>, Vec<RrsetChange>, Vec<StoredSet>)> {
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| error.line);
            return Err(DnsError::InvalidLines(self.errors));
        }
        let requested = self.sets.into_iter().flatten().map(|(line, set)| (line, RrsetChange::set(set, None)));
        let (lines, mut changes): (Vec<_>, Vec<_>) = requested.unzip();
        changes.append(&mut self.removed);
        Ok((lines, changes, self.stored))
    }
}
