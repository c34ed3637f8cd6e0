//! Suppressed recipients.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Uuid};
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use kernel::{Paging, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::model::{Suppression, SuppressionReason};
use crate::schema::suppressions;

/// A suppressed recipient.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable)]
#[diesel(table_name = suppressions)]
pub struct SuppressionRecord {
    pub address: String,
    pub reason: SuppressionReason,
    pub detail: Option<String>,
    pub created_at: Time,
}

/// Suppressed recipients on a [`store::Connection`].
pub trait SuppressionRepository {
    /// Suppresses a recipient, or replaces the reason of a suppressed recipient.
    async fn suppression_put(&mut self, project: ProjectId, suppression: &SuppressionRecord) -> Result<()>;

    /// Returns the first suppressed recipient among these addresses.
    async fn suppression_find(&mut self, project: ProjectId, addresses: &[String])
    -> Result<Option<SuppressionRecord>>;

    /// Returns the suppressed recipients of a project in the order of their addresses.
    async fn suppression_list(&mut self, project: ProjectId, paging: &Paging<String>)
    -> Result<Vec<SuppressionRecord>>;

    /// Deletes a suppressed recipient. Returns false if the recipient is not suppressed.
    async fn suppression_delete(&mut self, project: ProjectId, address: &str) -> Result<bool>;

    /// Deletes the suppressed recipients of a project except this many of them: first the oldest bounces, and then the
    /// oldest complaints. Returns the number of deleted ones.
    async fn suppression_trim(&mut self, project: ProjectId, keep: i64) -> Result<usize>;

    /// Deletes all suppressed recipients of a project.
    async fn suppression_purge(&mut self, project: ProjectId) -> Result<()>;
}

const TRIM: &str = "DELETE FROM mail.suppressions WHERE project_id = $1 AND address = ANY (ARRAY(
        SELECT address FROM mail.suppressions WHERE project_id = $1
        ORDER BY project_id DESC, reason DESC, created_at DESC OFFSET $2))";

impl SuppressionRepository for Connection {
    async fn suppression_put(&mut self, project: ProjectId, suppression: &SuppressionRecord) -> Result<()> {
        let upsert = diesel::insert_into(suppressions::table)
            .values((
                suppressions::project_id.eq(project),
                suppressions::address.eq(&suppression.address),
                suppressions::reason.eq(suppression.reason),
                suppressions::detail.eq(&suppression.detail),
                suppressions::created_at.eq(suppression.created_at),
            ))
            .on_conflict((suppressions::project_id, suppressions::address))
            .do_update()
            .set((
                suppressions::reason.eq(excluded(suppressions::reason)),
                suppressions::detail.eq(excluded(suppressions::detail)),
            ));
        // A bounce does not replace an earlier complaint.
        let is_bounce = suppressions::reason.eq(SuppressionReason::Bounce);
        let replaces = is_bounce.or(excluded(suppressions::reason).eq(SuppressionReason::Complaint));
        Prepared(diesel::query_dsl::methods::FilterDsl::filter(upsert, replaces)).execute(self).await?;
        Ok(())
    }

    async fn suppression_find(
        &mut self,
        project: ProjectId,
        addresses: &[String],
    ) -> Result<Option<SuppressionRecord>> {
        let found = suppressions::project_id.eq(project).and(suppressions::address.eq_any(addresses));
        let query = suppressions::table.filter(found).order(suppressions::address);
        Ok(query.select(SuppressionRecord::as_select()).first(self).await.optional()?)
    }

    async fn suppression_list(
        &mut self,
        project: ProjectId,
        paging: &Paging<String>,
    ) -> Result<Vec<SuppressionRecord>> {
        // Addresses are not empty, so the empty text is before all of them.
        let after = paging.after.as_deref().unwrap_or_default();
        let page = suppressions::project_id.eq(project).and(suppressions::address.gt(after));
        let query = suppressions::table.filter(page).order(suppressions::address).limit(paging.fetch());
        Ok(query.select(SuppressionRecord::as_select()).load(self).await?)
    }

    async fn suppression_delete(&mut self, project: ProjectId, address: &str) -> Result<bool> {
        Ok(diesel::delete(suppressions::table.find((project, address))).execute(self).await? == 1)
    }

    async fn suppression_trim(&mut self, project: ProjectId, keep: i64) -> Result<usize> {
        let delete = diesel::sql_query(TRIM).bind::<Uuid, _>(project).bind::<BigInt, _>(keep);
        Ok(Prepared(delete).execute(self).await?)
    }

    async fn suppression_purge(&mut self, project: ProjectId) -> Result<()> {
        diesel::delete(suppressions::table.filter(suppressions::project_id.eq(project))).execute(self).await?;
        Ok(())
    }
}

impl From<SuppressionRecord> for Suppression {
    fn from(record: SuppressionRecord) -> Self {
        let SuppressionRecord { address, reason, detail, created_at } = record;
        Self { address, reason, detail, created_at }
    }
}
