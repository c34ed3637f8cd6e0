//! The bundles of organizations.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::{Digest, OrgId};
use store::{Connection, Prepared, Result};

use crate::schema::{bundle_totals, bundles};

/// Bundles on a [`store::Connection`].
pub trait BundleRepository {
    /// Counts a bundle of an organization, and returns the new total size of the organization's bundles. Returns `None`
    /// if the bundle is already counted. Locks the total until the transaction ends.
    async fn bundle_count(&mut self, org: OrgId, digest: Digest, size_bytes: i64) -> Result<Option<i64>>;
}

impl BundleRepository for Connection {
    async fn bundle_count(&mut self, org: OrgId, digest: Digest, size_bytes: i64) -> Result<Option<i64>> {
        let bundle = (bundles::org_id.eq(org), bundles::digest.eq(digest), bundles::size_bytes.eq(size_bytes));
        let insert = diesel::insert_into(bundles::table).values(bundle).on_conflict_do_nothing();
        if Prepared(insert).execute(self).await? == 0 {
            return Ok(None);
        }
        let raise = diesel::insert_into(bundle_totals::table)
            .values((bundle_totals::org_id.eq(org), bundle_totals::size_bytes.eq(size_bytes)))
            .on_conflict(bundle_totals::org_id)
            .do_update()
            .set(bundle_totals::size_bytes.eq(bundle_totals::size_bytes + size_bytes))
            .returning(bundle_totals::size_bytes);
        Ok(Some(Prepared(raise).get_result(self).await?))
    }
}
