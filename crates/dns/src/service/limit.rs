//! The limits of zones. The plan of the organization limits the number of its zones and the bytes of each.

use kernel::{InvalidField, OrgId, Plan};
use store::Connection;

use super::{Dns, Result};
use crate::error::DnsError;
use crate::model::ManagedBy;
use crate::repository::{Edit, ReservationRepository as _, ZoneRecord, ZoneRepository as _, ZoneSize};

/// The maximum number of rrsets of a zone, in every plan.
const MAX_RRSETS: u32 = 100_000;

impl Dns {
    /// Checks that the organization may have another zone. Reserved names count too. The caller holds the catalog lock,
    /// so that the number of zones does not change before the new zone is written.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneLimit`].
    pub(super) async fn check_zone_count(&self, tx: &mut Connection, org: OrgId) -> Result<()> {
        let plan = self.plan_of(tx, org).await?;
        let (limit, count) =
            (self.limits.for_plan(plan).zones, tx.zone_count(org).await? + tx.reservation_count(org).await?);
        if count >= i64::from(limit) { Err(DnsError::ZoneLimit { limit, count, plan }) } else { Ok(()) }
    }

    /// Returns the size of a locked zone after these edits. A zone can be above the limit after a change of the plan;
    /// it may then shrink, but not grow. The platform's own rrsets are exempt from the limit, because they must stay
    /// correct in a full zone.
    ///
    /// # Errors
    /// Returns [`DnsError::ZoneBytesLimit`], or [`DnsError::InvalidFields`] for too many rrsets.
    pub(super) async fn check_size(&self, tx: &mut Connection, zone: &ZoneRecord, edits: &[Edit]) -> Result<ZoneSize> {
        let size = ZoneSize::after(zone, edits)?;
        let Some(org) = zone.org.filter(|_| !edits.iter().all(is_exempt)) else { return Ok(size) };
        if size.rrset_count > MAX_RRSETS && size.rrset_count > zone.rrset_count {
            return Err(InvalidField::new("", format!("a zone can have at most {MAX_RRSETS} rrsets")).into());
        }
        // Most zones are within the limit of every plan. For these, do not look up the plan.
        let smallest_limit = Plan::ALL.iter().map(|plan| self.limits.for_plan(*plan).zone_bytes).min();
        if size.bytes <= zone.bytes || size.bytes <= smallest_limit.unwrap_or_default() {
            return Ok(size);
        }
        let plan = self.plan_of(tx, org).await?;
        let (limit, bytes) = (self.limits.for_plan(plan).zone_bytes, size.bytes);
        if bytes > limit {
            return Err(DnsError::ZoneBytesLimit { zone: zone.name.as_str().to_owned(), limit, bytes, plan });
        }
        Ok(size)
    }

    /// Returns the size above which a zone file is not parsed further. [`Self::check_size`] decides about all others. It
    /// is a tenth above the largest limits, because the platform's own rrsets are exempt from them.
    pub(super) fn max_file_size(&self) -> ZoneSize {
        let bytes = Plan::ALL.iter().map(|plan| self.limits.for_plan(*plan).zone_bytes).max().unwrap_or_default();
        ZoneSize { rrset_count: MAX_RRSETS + MAX_RRSETS / 10, bytes: bytes.saturating_add(bytes / 10) }
    }

    async fn plan_of(&self, tx: &mut Connection, org: OrgId) -> Result<Plan> {
        let plan = self.organizations.plan(tx, org).await?;
        Ok(plan.ok_or_else(|| store::Error::inconsistent("the organization of a zone does not exist"))?)
    }
}

/// Returns whether an edit is exempt from the limits: it deletes an rrset or writes one of the platform's own.
pub(super) fn is_exempt(edit: &Edit) -> bool {
    edit.new.as_ref().is_none_or(|(.., by)| *by == Some(ManagedBy::System))
}
