//! Managed TXT records for certificate issuance (RFC 8555 section 8.4).

use kernel::OrgId;
use store::Connection;

use super::edit::{RrsetChange, conflicts};
use super::link::rrsets_at_host;
use super::{Dns, Result};
use crate::error::DnsError;
use crate::model::ManagedBy;
use crate::{Rdata, RecordSet, RecordType, ZoneName};

/// The result of publishing a challenge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChallengeResult {
    /// The zone contains the record.
    Published { zone: String },
    /// The organization has no zone that contains the name.
    NoZone,
    /// The zone would exceed a limit.
    Full { zone: String },
    /// The zone delegates the name, or a name between it and the apex, to other nameservers.
    Delegated { zone: String },
    /// The name has a TXT or CNAME record that this platform does not manage.
    Occupied { zone: String },
}

impl Dns {
    /// Writes the TXT record of a challenge, in the caller's transaction. Keeps those of other challenges at the same
    /// name, as that of a wildcard. `text` is base64url.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn challenge_publish(
        &self,
        tx: &mut Connection,
        org: OrgId,
        host: &str,
        text: &str,
    ) -> Result<ChallengeResult> {
        if self.hosting.is_none() {
            return Ok(ChallengeResult::NoZone);
        }
        let Some((zone, owner)) = self.lock_enclosing_zone(tx, org, host, None).await? else {
            return Ok(ChallengeResult::NoZone);
        };
        let zone_name = zone.name.as_str().to_owned();
        let Some(stored) = rrsets_at_host(tx, &zone, host, &owner).await? else {
            return Ok(ChallengeResult::Delegated { zone: zone_name });
        };
        let is_occupied = stored.iter().any(|stored| {
            stored.managed_by != Some(ManagedBy::Certificate) && conflicts(RecordType::Txt, stored.set.kind)
        });
        if is_occupied {
            return Ok(ChallengeResult::Occupied { zone: zone_name });
        }
        let others = stored.into_iter().filter(|stored| stored.managed_by == Some(ManagedBy::Certificate));
        let mut records: Vec<Rdata> = others.flat_map(|stored| stored.set.records).collect();
        records.push(challenge_record(text)?);
        let set = RecordSet::new(owner, RecordType::Txt, *RecordSet::TTL.start(), records);
        let change = RrsetChange::set(set, Some(ManagedBy::Certificate));
        let edits = self.plan_edits(tx, &zone, vec![change], Some(ManagedBy::Certificate)).await?;
        let is_applied = self.apply_within_limits(tx, zone, &edits).await?;
        Ok(if is_applied {
            ChallengeResult::Published { zone: zone_name }
        } else {
            ChallengeResult::Full { zone: zone_name }
        })
    }

    /// Deletes the record that [`Dns::challenge_publish`] wrote, in the caller's transaction. A no-op without such a
    /// record.
    ///
    /// # Errors
    /// Returns [`crate::DnsError::Store`].
    pub async fn challenge_withdraw(&self, tx: &mut Connection, org: OrgId, host: &str, text: &str) -> Result<()> {
        let record = challenge_record(text)?;
        self.change_managed(tx, org, host, ManagedBy::Certificate, |mut set| {
            set.records.retain(|other| *other != record);
            if set.records.is_empty() {
                return RrsetChange::delete(set.owner, set.kind);
            }
            RrsetChange::set(set, Some(ManagedBy::Certificate))
        })
        .await
    }
}

fn challenge_record(text: &str) -> Result<Rdata> {
    // The data of a TXT record contain no name that depends on the zone.
    let zone = ZoneName::new_unchecked(String::new());
    let record = Rdata::parse(RecordType::Txt, &format!("\"{text}\""), &zone);
    record.map_err(|error| DnsError::Store(store::Error::inconsistent(error.to_string())))
}
