//! Automatic top-ups.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Timestamptz, Uuid as SqlUuid};
use diesel_async::RunQueryDsl;
use kernel::{OrgId, ProjectId, Time};
use store::{Connection, Prepared, Result};
use uuid::Uuid;

use crate::model::{AutoTopup, TopUpState};
use crate::schema::{auto_topups, customers, topup_orders};

/// An automatic top-up.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = topup_orders)]
pub struct TopUpRecord {
    pub id: Uuid,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    pub amount_micro_cents: i64,
    /// The provider's id of the draft order.
    pub order_id: Option<String>,
    pub state: TopUpState,
    pub created_at: Time,
}

/// Automatic top-ups on a [`store::Connection`].
pub trait TopUpRepository {
    /// Returns the settings of an organization.
    async fn auto_topup_get(&mut self, org: OrgId) -> Result<AutoTopup>;

    /// Turns auto top-up on with an amount and a threshold, in microcents.
    async fn auto_topup_enable(&mut self, org: OrgId, amount: i64, threshold: i64) -> Result<()>;

    /// Turns auto top-up off. Returns false if it was off.
    async fn auto_topup_disable(&mut self, org: OrgId) -> Result<bool>;

    /// Returns the organization of a project and the amount of its automatic top-up if a top-up is due: auto top-up is
    /// on, the balance is below its threshold, and no top-up is in progress.
    async fn topup_due(&mut self, project: ProjectId) -> Result<Option<(OrgId, i64)>>;

    /// Locks the account of a project's organization until the transaction ends.
    async fn account_lock(&mut self, project: ProjectId) -> Result<()>;

    /// Creates a top-up, unless one is in progress or the organization had `per_day` of them on the UTC day that starts at
    /// `day`. The caller holds the lock of the account. Returns whether the top-up was created.
    async fn topup_create(&mut self, new: &TopUpRecord, day: Time, per_day: i64) -> Result<bool>;

    /// Counts the top-ups of an organization on the UTC day that starts at this time, without those that were canceled
    /// before their order existed.
    async fn topup_count(&mut self, org: OrgId, day: Time) -> Result<i64>;

    /// Returns a top-up.
    async fn topup_find(&mut self, id: Uuid) -> Result<Option<TopUpRecord>>;

    /// Returns the organization whose top-up has this order.
    async fn topup_org(&mut self, order_id: &str) -> Result<Option<OrgId>>;

    /// Stores the draft order of a pending top-up that has none. Returns the stored order, or `None` if the top-up is not
    /// pending.
    async fn topup_set_order(&mut self, id: Uuid, order_id: &str) -> Result<Option<String>>;

    /// Cancels the pending top-up of an organization, unless it has a draft order, which may be paid already.
    async fn topup_cancel(&mut self, org: OrgId) -> Result<()>;

    /// Moves a pending top-up to this state. Returns false if it is not pending.
    async fn topup_end_pending(&mut self, id: Uuid, state: TopUpState) -> Result<bool>;

    /// Moves a top-up whose event has not arrived from `charged` to this state. Returns false if it is in another state.
    async fn topup_end_charged(&mut self, id: Uuid, state: TopUpState) -> Result<bool>;

    /// Returns at most `limit` top-ups whose event has not arrived, oldest first.
    async fn topup_list_charged(&mut self, limit: i64) -> Result<Vec<TopUpRecord>>;

    /// Counts the top-ups that were created before this time and whose event has not arrived.
    async fn topup_count_charged(&mut self, created_before: Time) -> Result<i64>;

    /// Marks the top-up of an order as credited.
    async fn topup_credited(&mut self, order_id: &str) -> Result<()>;

    /// Returns the provider's id of an organization as a customer, if a webhook contained it.
    async fn customer_find(&mut self, org: OrgId) -> Result<Option<String>>;
}

#[derive(QueryableByName)]
struct Count {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

const DUE: &str = "\
    SELECT t.org_id, t.amount_micro_cents FROM billing.ai_projects p JOIN billing.auto_topups t USING (org_id) \
        LEFT JOIN billing.accounts a USING (org_id) \
    WHERE p.id = $1 AND t.enabled AND coalesce(a.balance_micro_cents, 0) < t.threshold_micro_cents \
        AND NOT EXISTS (SELECT FROM billing.topup_orders o WHERE o.org_id = t.org_id AND o.state IN ('pending', 'charged'))";

impl TopUpRepository for Connection {
    async fn auto_topup_get(&mut self, org: OrgId) -> Result<AutoTopup> {
        let columns = (auto_topups::enabled, auto_topups::amount_micro_cents, auto_topups::threshold_micro_cents);
        let found = auto_topups::table.find(org).select(columns).first::<(bool, i64, i64)>(self).await.optional()?;
        Ok(found.map_or_else(AutoTopup::default, |(enabled, amount, threshold)| AutoTopup {
            enabled,
            amount_micro_cents: Some(amount),
            threshold_micro_cents: Some(threshold),
        }))
    }

    async fn auto_topup_enable(&mut self, org: OrgId, amount: i64, threshold: i64) -> Result<()> {
        let values = (
            auto_topups::enabled.eq(true),
            auto_topups::amount_micro_cents.eq(amount),
            auto_topups::threshold_micro_cents.eq(threshold),
        );
        diesel::insert_into(auto_topups::table)
            .values((auto_topups::org_id.eq(org), values))
            .on_conflict(auto_topups::org_id)
            .do_update()
            .set(values)
            .execute(self)
            .await?;
        Ok(())
    }

    async fn auto_topup_disable(&mut self, org: OrgId) -> Result<bool> {
        let enabled = auto_topups::table.find(org).filter(auto_topups::enabled);
        Ok(diesel::update(enabled).set(auto_topups::enabled.eq(false)).execute(self).await? == 1)
    }

    async fn topup_due(&mut self, project: ProjectId) -> Result<Option<(OrgId, i64)>> {
        #[derive(QueryableByName)]
        struct Due {
            #[diesel(sql_type = SqlUuid)]
            org_id: OrgId,
            #[diesel(sql_type = BigInt)]
            amount_micro_cents: i64,
        }
        let due = diesel::sql_query(DUE).bind::<SqlUuid, _>(project);
        let due: Option<Due> = Prepared(due).get_result(self).await.optional()?;
        Ok(due.map(|Due { org_id, amount_micro_cents }| (org_id, amount_micro_cents)))
    }

    async fn account_lock(&mut self, project: ProjectId) -> Result<()> {
        let lock =
            "SELECT FROM billing.accounts a JOIN billing.ai_projects p USING (org_id) WHERE p.id = $1 FOR UPDATE OF a";
        diesel::sql_query(lock).bind::<SqlUuid, _>(project).execute(self).await?;
        Ok(())
    }

    async fn topup_create(&mut self, new: &TopUpRecord, day: Time, per_day: i64) -> Result<bool> {
        if self.topup_count(new.org, day).await? >= per_day {
            return Ok(false);
        }
        // The unique index of open top-ups rejects a second one.
        let insert = diesel::insert_into(topup_orders::table).values(new).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn topup_count(&mut self, org: OrgId, day: Time) -> Result<i64> {
        let count = "SELECT count(*) AS count FROM billing.topup_orders \
            WHERE org_id = $1 AND created_at >= $2 AND created_at < $2 + interval '24 hours' \
                AND (state <> 'canceled' OR order_id IS NOT NULL)";
        let count = diesel::sql_query(count).bind::<SqlUuid, _>(org).bind::<Timestamptz, _>(day);
        let Count { count } = count.get_result(self).await?;
        Ok(count)
    }

    async fn topup_find(&mut self, id: Uuid) -> Result<Option<TopUpRecord>> {
        let found = topup_orders::table.find(id).select(TopUpRecord::as_select());
        Ok(found.first(self).await.optional()?)
    }

    async fn topup_org(&mut self, order_id: &str) -> Result<Option<OrgId>> {
        let of_order = topup_orders::table.filter(topup_orders::order_id.eq(order_id));
        Ok(of_order.select(topup_orders::org_id).first(self).await.optional()?)
    }

    async fn topup_set_order(&mut self, id: Uuid, order_id: &str) -> Result<Option<String>> {
        let pending = || topup_orders::table.find(id).filter(topup_orders::state.eq(TopUpState::Pending));
        let without = pending().filter(topup_orders::order_id.is_null());
        diesel::update(without).set(topup_orders::order_id.eq(order_id)).execute(self).await?;
        let stored = pending().select(topup_orders::order_id);
        Ok(stored.first::<Option<String>>(self).await.optional()?.flatten())
    }

    async fn topup_cancel(&mut self, org: OrgId) -> Result<()> {
        let cancelable = topup_orders::table
            .filter(topup_orders::org_id.eq(org).and(topup_orders::state.eq(TopUpState::Pending)))
            .filter(topup_orders::order_id.is_null());
        diesel::update(cancelable).set(topup_orders::state.eq(TopUpState::Canceled)).execute(self).await?;
        Ok(())
    }

    async fn topup_end_pending(&mut self, id: Uuid, state: TopUpState) -> Result<bool> {
        let pending = topup_orders::table.find(id).filter(topup_orders::state.eq(TopUpState::Pending));
        Ok(diesel::update(pending).set(topup_orders::state.eq(state)).execute(self).await? == 1)
    }

    async fn topup_end_charged(&mut self, id: Uuid, state: TopUpState) -> Result<bool> {
        let charged = topup_orders::table.find(id).filter(topup_orders::state.eq(TopUpState::Charged));
        Ok(diesel::update(charged).set(topup_orders::state.eq(state)).execute(self).await? == 1)
    }

    async fn topup_list_charged(&mut self, limit: i64) -> Result<Vec<TopUpRecord>> {
        let charged = topup_orders::table.filter(topup_orders::state.eq(TopUpState::Charged));
        let charged = charged.order((topup_orders::created_at, topup_orders::id)).limit(limit);
        Ok(charged.select(TopUpRecord::as_select()).load(self).await?)
    }

    async fn topup_count_charged(&mut self, created_before: Time) -> Result<i64> {
        // The literal state lets Postgres use the index of top-ups in progress.
        let count = "SELECT count(*) AS count FROM billing.topup_orders WHERE state = 'charged' AND created_at < $1";
        let count = diesel::sql_query(count).bind::<Timestamptz, _>(created_before);
        let Count { count } = count.get_result(self).await?;
        Ok(count)
    }

    async fn topup_credited(&mut self, order_id: &str) -> Result<()> {
        let of_order = topup_orders::table.filter(topup_orders::order_id.eq(order_id));
        diesel::update(of_order).set(topup_orders::state.eq(TopUpState::Credited)).execute(self).await?;
        Ok(())
    }

    async fn customer_find(&mut self, org: OrgId) -> Result<Option<String>> {
        Ok(customers::table.find(org).select(customers::customer_id).first(self).await.optional()?)
    }
}
