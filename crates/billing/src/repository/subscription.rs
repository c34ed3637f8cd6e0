//! Customers and subscriptions.

use chrono::{DateTime, Utc};
use diesel::prelude::*;
use diesel::query_dsl::methods;
use diesel_async::RunQueryDsl;
use kernel::OrgId;
use store::{Connection, Result};

use crate::schema::{customers, subscriptions};

/// The statuses with which a subscription gives the pro plan (specification, "States and transitions").
pub(crate) const LIVE: [&str; 3] = ["active", "trialing", "past_due"];

/// A subscription that has the pro product, or had it before.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = subscriptions, treat_none_as_null = true)]
pub struct SubscriptionRecord {
    /// The provider's id of the subscription.
    pub id: String,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    /// The status in the provider's terms, or `other_product`.
    pub status: String,
    pub current_period_end: Option<DateTime<Utc>>,
    pub cancel_at_period_end: bool,
    /// The provider's modification time.
    pub modified_at: DateTime<Utc>,
}

impl SubscriptionRecord {
    /// Returns whether the subscription gives the organization the pro plan.
    #[must_use]
    pub fn is_live(&self) -> bool {
        LIVE.contains(&self.status.as_str())
    }
}

/// Customers and subscriptions on a [`store::Connection`].
pub trait SubscriptionRepository {
    /// Stores the provider's id of an organization as a customer.
    async fn customer_set(&mut self, org: OrgId, customer_id: &str) -> Result<()>;

    /// Returns a subscription.
    async fn subscription_get(&mut self, id: &str) -> Result<Option<SubscriptionRecord>>;

    /// Stores the state of a subscription, unless a newer state is stored or the subscription belongs to another
    /// organization. Returns whether the state was stored.
    async fn subscription_set(&mut self, state: &SubscriptionRecord) -> Result<bool>;

    /// Stores whether a live subscription ends with its period. Returns whether the stored value changed.
    async fn subscription_schedule(&mut self, id: &str, cancel: bool) -> Result<bool>;

    /// Returns the subscriptions of an organization: live ones before ended ones, and then the newest first.
    async fn subscription_list(&mut self, org: OrgId) -> Result<Vec<SubscriptionRecord>>;
}

impl SubscriptionRepository for Connection {
    async fn customer_set(&mut self, org: OrgId, customer_id: &str) -> Result<()> {
        diesel::insert_into(customers::table)
            .values((customers::org_id.eq(org), customers::customer_id.eq(customer_id)))
            .on_conflict(customers::org_id)
            .do_update()
            .set(customers::customer_id.eq(customer_id))
            .execute(self)
            .await?;
        Ok(())
    }

    async fn subscription_get(&mut self, id: &str) -> Result<Option<SubscriptionRecord>> {
        Ok(subscriptions::table.find(id).select(SubscriptionRecord::as_select()).first(self).await.optional()?)
    }

    async fn subscription_set(&mut self, state: &SubscriptionRecord) -> Result<bool> {
        use diesel::upsert::excluded;
        let is_newer = subscriptions::modified_at.le(excluded(subscriptions::modified_at));
        let is_own = subscriptions::org_id.eq(excluded(subscriptions::org_id));
        let upsert = diesel::insert_into(subscriptions::table)
            .values(state)
            .on_conflict(subscriptions::id)
            .do_update()
            .set(state);
        let upsert = methods::FilterDsl::filter(upsert, is_newer.and(is_own));
        Ok(upsert.execute(self).await? == 1)
    }

    async fn subscription_schedule(&mut self, id: &str, cancel: bool) -> Result<bool> {
        let scheduled = subscriptions::table.find(id).filter(subscriptions::cancel_at_period_end.ne(cancel));
        let update = diesel::update(scheduled).set(subscriptions::cancel_at_period_end.eq(cancel));
        Ok(update.execute(self).await? == 1)
    }

    async fn subscription_list(&mut self, org: OrgId) -> Result<Vec<SubscriptionRecord>> {
        let query = subscriptions::table
            .filter(subscriptions::org_id.eq(org))
            .order((subscriptions::status.eq_any(LIVE).desc(), subscriptions::modified_at.desc(), subscriptions::id))
            .select(SubscriptionRecord::as_select());
        Ok(query.load(self).await?)
    }
}
