//! A zone as a file.

use std::collections::HashMap;

use kernel::OrgId;
use kernel::audit::{Actor, Event};
use store::{Connection, Outcome};

use super::edit::{Wish, settle, told};
use super::rrset::difference;
use super::{At, Dns, Expected, Result, found};
use crate::error::DnsError;
use crate::model::{Difference, ZoneDetail};
use crate::repository::{RrsetRepository as _, StoredSet, ZoneRecord};
use crate::zonefile::{self, Fault, Zonefile};
use crate::{OwnerName, RecordType};

/// What became of a zone file.
#[derive(Debug)]
pub enum Imported {
    /// The zone is what the file says.
    Done(At<ZoneDetail>),
    /// The zone would change so.
    Would(At<Difference>),
}

impl Dns {
    /// The zone as a file, the managed rrsets included.
    ///
    /// # Errors
    /// [`DnsError::ZoneNotFound`].
    pub async fn zonefile(&self, org: OrgId, name: &str) -> Result<At<String>> {
        let (zone, stored) = self.content(org, name).await?;
        let (_, soa) = self.hosting()?.soa(&zone.name, zone.serial);
        let value = zonefile::write(&zone.name, &soa, stored.iter().map(|stored| &stored.set));
        Ok(At { serial: zone.serial, value })
    }

    /// Makes the content of a zone that of a file. What is managed stays: the file's SOA and its NS records of the zone
    /// itself are passed over, and anything else that is managed must be as it is here, or not in the file.
    ///
    /// # Errors
    /// [`DnsError::Lines`], [`DnsError::ZoneNotFound`], [`DnsError::Changed`].
    pub async fn zonefile_put(
        &self,
        actor: &Actor,
        (org, name): (OrgId, &str),
        text: String,
        dry_run: bool,
        expected: &Expected,
    ) -> Result<Imported> {
        self.hosting()?;
        let origin = found(&mut *self.store.connection().await?, org, name).await?.name;
        // A large file takes a while: not on a thread that answers requests.
        let read = tokio::task::spawn_blocking(move || zonefile::read(&origin, &text)).await;
        let file = read.map_err(store::Error::inconsistent)?.map_err(DnsError::Lines)?;
        let imported = self
            .store
            .transaction(actor, async |tx: &mut Connection| {
                let zone = self.locked(tx, org, name, expected).await?;
                let stored = tx.rrset_list(zone.id).await?;
                let (lines, wishes) = wishes(&zone, file, &stored)?;
                let plan = settle(&zone, stored.into_iter(), wishes, None);
                if !plan.refused.is_empty() {
                    let fault = |(place, error): &(usize, DnsError)| Fault {
                        line: lines.get(*place).copied().unwrap_or_default(),
                        message: error.to_string(),
                    };
                    return Err(DnsError::Lines(plan.refused.iter().map(fault).collect()));
                }
                if dry_run {
                    let value = difference(&zone, &plan.edits);
                    return Ok(Outcome::Unchanged(Some(At { serial: zone.serial, value })));
                }
                if plan.edits.is_empty() {
                    return Ok(Outcome::Unchanged(None));
                }
                let zone = self.apply(tx, zone, &plan.edits).await?;
                let event = Event::in_org("dns.zone.import", org, zone.id, told(&zone, &plan.edits));
                Ok(Outcome::Changed(None, event))
            })
            .await?;
        match imported {
            Some(difference) => Ok(Imported::Would(difference)),
            None => self.zone(org, name).await.map(Imported::Done),
        }
    }
}

/// What a file asks for, with the line of each wish: what it says, and that what else users edit is gone.
fn wishes(zone: &ZoneRecord, file: Zonefile, stored: &[StoredSet]) -> Result<(Vec<u32>, Vec<Wish>)> {
    let there: HashMap<(&OwnerName, RecordType), &StoredSet> =
        stored.iter().map(|stored| ((&stored.set.owner, stored.set.kind), stored)).collect();
    let mut named = std::collections::HashSet::new();
    let (mut lines, mut wishes, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    for (line, set) in file.sets {
        let key = (set.owner.clone(), set.kind);
        let apex_ns = set.kind == RecordType::Ns && set.owner.is_apex();
        match there.get(&(&set.owner, set.kind)).and_then(|stored| Some((stored, stored.managed_by?))) {
            _ if apex_ns => {}
            Some((stored, _)) if stored.set == set => {}
            Some((_, managed_by)) => {
                let name = set.owner.absolute(&zone.name);
                let error = DnsError::Managed { name, kind: set.kind.as_str(), managed_by };
                faults.push(Fault { line, message: error.to_string() });
            }
            None => {
                lines.push(line);
                wishes.push(Wish::of(set, None));
            }
        }
        named.insert(key);
    }
    if !faults.is_empty() {
        return Err(DnsError::Lines(faults));
    }
    let unnamed = stored
        .iter()
        .filter(|stored| stored.managed_by.is_none() && !named.contains(&(stored.set.owner.clone(), stored.set.kind)));
    wishes.extend(unnamed.map(|stored| Wish::none(stored.set.owner.clone(), stored.set.kind)));
    Ok((lines, wishes))
}
