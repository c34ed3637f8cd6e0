//! Names that are being registered.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::OrgId;
use store::{Connection, Result};

use super::zone::{path, path_range, with_parents};
use crate::ZoneName;
use crate::schema::reservations;

/// Reservations on a [`store::Connection`].
pub trait ReservationRepository {
    /// Reserves a name. Requires the catalog lock, and that no other organization has reserved the name.
    async fn reservation_insert(&mut self, org: OrgId, name: &ZoneName) -> Result<()>;

    /// Releases a name.
    async fn reservation_delete(&mut self, name: &ZoneName) -> Result<()>;

    /// Returns the number of names that the organization has reserved. The limit of zones bounds it.
    async fn reservation_count(&mut self, org: OrgId) -> Result<i64>;

    /// Returns whether the organization has reserved this name.
    async fn reservation_exists(&mut self, org: OrgId, name: &ZoneName) -> Result<bool>;

    /// Returns whether another organization has reserved this name, a parent of it or a name below it.
    async fn reservation_overlaps(&mut self, org: OrgId, name: &ZoneName) -> Result<bool>;
}

impl ReservationRepository for Connection {
    async fn reservation_insert(&mut self, org: OrgId, name: &ZoneName) -> Result<()> {
        let row =
            (reservations::name.eq(name.as_str()), reservations::path.eq(path(name)), reservations::org_id.eq(org));
        diesel::insert_into(reservations::table).values(row).on_conflict_do_nothing().execute(self).await?;
        Ok(())
    }

    async fn reservation_delete(&mut self, name: &ZoneName) -> Result<()> {
        diesel::delete(reservations::table.find(name.as_str())).execute(self).await?;
        Ok(())
    }

    async fn reservation_count(&mut self, org: OrgId) -> Result<i64> {
        Ok(reservations::table.filter(reservations::org_id.eq(org)).count().get_result(self).await?)
    }

    async fn reservation_exists(&mut self, org: OrgId, name: &ZoneName) -> Result<bool> {
        let reserved = reservations::table.find(name.as_str()).filter(reservations::org_id.eq(org));
        Ok(diesel::select(diesel::dsl::exists(reserved)).get_result(self).await?)
    }

    async fn reservation_overlaps(&mut self, org: OrgId, name: &ZoneName) -> Result<bool> {
        let (first, end) = path_range(name);
        let below = reservations::path.ge(first).and(reservations::path.lt(end));
        let related = reservations::name.eq_any(with_parents(name.as_str())).or(below);
        let other_orgs = reservations::table.filter(reservations::org_id.ne(org)).filter(related);
        Ok(diesel::select(diesel::dsl::exists(other_orgs)).get_result(self).await?)
    }
}
