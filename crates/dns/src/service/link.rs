//! Hostnames of projects in hosted zones: their records are managed here.

use kernel::OrgId;
use store::Connection;

use super::edit::{MOST, Wish};
use super::{Dns, Result};
use crate::model::ManagedBy;
use crate::repository::{RrsetRepository as _, ZoneRepository as _};
use crate::{OwnerName, RecordSet, RecordType};

/// What became of a hostname's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// They are there; whether they were not before.
    Linked { changed: bool },
    /// The organization has no zone that the name lies in.
    NoZone,
    /// The zone holds as many rrsets as a zone may.
    Full { zone: String },
    /// Records of others are at the name.
    Occupied { zone: String },
    /// The name is the zone's own, which no CNAME can be at, and there are no addresses to put there.
    NoAddress { zone: String },
}

impl Dns {
    /// The organization's zone that a name lies in; none where no zones are hosted.
    ///
    /// # Errors
    /// [`crate::DnsError::Store`].
    pub async fn zone_of(&self, connection: &mut Connection, org: OrgId, host: &str) -> Result<Option<String>> {
        if self.hosting.is_none() {
            return Ok(None);
        }
        let zones = connection.zones_over(org, host).await?;
        Ok(zones.into_iter().next().map(|zone| zone.as_str().to_owned()))
    }

    /// Leads visitors of a name to the platform, in the caller's transaction.
    ///
    /// # Errors
    /// [`crate::DnsError::Store`].
    pub async fn link(&self, tx: &mut Connection, org: OrgId, host: &str) -> Result<Link> {
        let Some(hosting) = self.hosting.as_deref() else { return Ok(Link::NoZone) };
        let Some(name) = tx.zones_over(org, host).await?.into_iter().next() else { return Ok(Link::NoZone) };
        // Deleted meanwhile.
        let Some(zone) = tx.zone_lock(org, &name).await? else { return Ok(Link::NoZone) };
        let Ok(owner) = OwnerName::parse(host, &zone.name) else { return Ok(Link::NoZone) };
        let records = hosting.link(&owner, &zone.name);
        let zone_name = zone.name.as_str().to_owned();
        if records.is_empty() {
            return Ok(Link::NoAddress { zone: zone_name });
        }
        let ours = |kind: RecordType| records.iter().find(|(it, _)| *it == kind).map(|(_, records)| records);
        let foreign = tx.rrset_at(zone.id, &[owner.as_str()]).await?.into_iter().any(|stored| {
            let free = stored.managed_by == Some(ManagedBy::Project);
            let address = matches!(stored.set.kind, RecordType::A | RecordType::Aaaa | RecordType::Cname);
            // Beside an alias there is nothing else; beside addresses there may be.
            let in_the_way = ours(RecordType::Cname).is_some() || address;
            !free && in_the_way && ours(stored.set.kind) != Some(&stored.set.records)
        });
        if foreign {
            return Ok(Link::Occupied { zone: zone_name });
        }
        let wishes = records.into_iter().map(|(kind, records)| {
            let set = RecordSet { owner: owner.clone(), kind, ttl: RecordSet::DEFAULT_TTL, records };
            Wish::of(set, Some(ManagedBy::Project))
        });
        let edits = self.edits(tx, &zone, wishes.collect(), Some(ManagedBy::Project)).await?;
        if zone.rrset_count as usize + edits.len() > MOST as usize {
            return Ok(Link::Full { zone: zone_name });
        }
        self.apply(tx, zone, &edits).await?;
        Ok(Link::Linked { changed: !edits.is_empty() })
    }

    /// Takes the records of a name away that [`Dns::link`] put there, in the caller's transaction.
    ///
    /// # Errors
    /// [`crate::DnsError::Store`].
    pub async fn unlink(&self, tx: &mut Connection, org: OrgId, host: &str) -> Result<()> {
        if self.hosting.is_none() {
            return Ok(());
        }
        // A nearer zone may have come since.
        for name in tx.zones_over(org, host).await? {
            let Some(zone) = tx.zone_lock(org, &name).await? else { continue };
            let Ok(owner) = OwnerName::parse(host, &zone.name) else { continue };
            let stored = tx.rrset_at(zone.id, &[owner.as_str()]).await?;
            let ours = stored.into_iter().filter(|stored| stored.managed_by == Some(ManagedBy::Project));
            let wishes: Vec<Wish> = ours.map(|stored| Wish::none(owner.clone(), stored.set.kind)).collect();
            let edits = self.edits(tx, &zone, wishes, Some(ManagedBy::Project)).await?;
            self.apply(tx, zone, &edits).await?;
        }
        Ok(())
    }
}
