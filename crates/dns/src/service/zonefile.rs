//! Import and export of zone files.

use std::collections::HashMap;

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use store::{Connection, Outcome};

use super::edit::{RrsetChange, audit_data, plan_changes};
use super::rrset::difference;
use super::{AtSerial, Dns, Precondition, Result, load_zone};
use crate::error::DnsError;
use crate::model::{Difference, ZoneDetail};
use crate::repository::{RrsetRepository as _, StoredSet, ZoneRecord};
use crate::zonefile::{self, LineError, Zonefile};
use crate::{OwnerName, RecordType};

/// The result of a zone file import.
#[derive(Debug)]
pub enum ImportResult {
    /// The zone after the import.
    Applied(AtSerial<ZoneDetail>),
    /// The changes that the import would make.
    DryRun(AtSerial<Difference>),
}

impl Dns {
    /// Exports a zone as a file, with managed rrsets.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zonefile(&self, org: OrgId, name: &str) -> Result<AtSerial<String>> {
        let (zone, stored) = self.load_content(org, name).await?;
        let (_, soa) = self.hosting()?.soa(&zone.name, zone.serial);
        let value = zonefile::write(&zone.name, &soa, stored.iter().map(|stored| &stored.set));
        Ok(AtSerial { serial: zone.serial, value })
    }

    /// Replaces the content of a zone with that of a file. Managed rrsets stay: the import ignores the SOA and apex NS
    /// records of the file, which must not change other managed rrsets.
    ///
    /// # Errors
    /// [`DnsError::InvalidLines`], [`DnsError::ZoneNotFound`], [`DnsError::SerialMismatch`].
    pub async fn zonefile_put(
        &self,
        actor: &Actor,
        (org, name): (OrgId, &str),
        text: String,
        dry_run: bool,
        precondition: &Precondition,
    ) -> Result<ImportResult> {
        self.hosting()?;
        let origin = load_zone(&mut *self.store.connection().await?, org, name).await?.name;
        // A large file would block a thread that serves requests.
        let read = tokio::task::spawn_blocking(move || zonefile::read(&origin, &text)).await;
        let file = read.map_err(store::Error::inconsistent)?.map_err(DnsError::InvalidLines)?;
        let imported = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.lock_zone(tx, org, name, precondition).await?;
                let stored = tx.rrset_list(zone.id).await?;
                let (lines, changes) = file_changes(&zone, file, &stored)?;
                let plan = plan_changes(&zone, stored.into_iter(), changes, None);
                if !plan.rejected.is_empty() {
                    let line_error = |(index, error): &(usize, DnsError)| LineError {
                        line: lines.get(*index).copied().unwrap_or_default(),
                        message: error.to_string(),
                    };
                    return Err(DnsError::InvalidLines(plan.rejected.iter().map(line_error).collect()));
                }
                if dry_run {
                    let value = difference(&zone, &plan.edits);
                    return Ok(Outcome::Unchanged(Some(AtSerial { serial: zone.serial, value })));
                }
                if plan.edits.is_empty() {
                    return Ok(Outcome::Unchanged(None));
                }
                let zone = self.apply_edits(tx, zone, &plan.edits).await?;
                let event = Event::in_org("dns.zone.import", org, zone.id, audit_data(&zone, &plan.edits));
                Ok(Outcome::Changed(None, event))
            })
            .await?;
        match imported {
            Some(difference) => Ok(ImportResult::DryRun(difference)),
            None => self.zone(org, name).await.map(ImportResult::Applied),
        }
    }
}

/// The changes that a file requests, with their lines. Deletes the rrsets of users that the file omits.
fn file_changes(zone: &ZoneRecord, file: Zonefile, stored: &[StoredSet]) -> Result<(Vec<u32>, Vec<RrsetChange>)> {
    let stored_by_key: HashMap<(&OwnerName, RecordType), &StoredSet> =
        stored.iter().map(|stored| ((&stored.set.owner, stored.set.kind), stored)).collect();
    let mut listed = std::collections::HashSet::new();
    let (mut lines, mut changes, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for (line, set) in file.sets {
        let key = (set.owner.clone(), set.kind);
        let apex_ns = set.kind == RecordType::Ns && set.owner.is_apex();
        match stored_by_key.get(&(&set.owner, set.kind)).and_then(|stored| Some((stored, stored.managed_by?))) {
            _ if apex_ns => {}
            Some((stored, _)) if stored.set == set => {}
            Some((_, managed_by)) => {
                let name = set.owner.absolute(&zone.name);
                let error = DnsError::Managed { name, kind: set.kind.as_str(), managed_by };
                errors.push(LineError { line, message: error.to_string() });
            }
            None => {
                lines.push(line);
                changes.push(RrsetChange::set(set, None));
            }
        }
        listed.insert(key);
    }
    if !errors.is_empty() {
        return Err(DnsError::InvalidLines(errors));
    }
    let unlisted = stored
        .iter()
        .filter(|stored| stored.managed_by.is_none() && !listed.contains(&(stored.set.owner.clone(), stored.set.kind)));
    changes.extend(unlisted.map(|stored| RrsetChange::delete(stored.set.owner.clone(), stored.set.kind)));
    Ok((lines, changes))
}
