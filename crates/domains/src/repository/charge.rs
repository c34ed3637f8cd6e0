//! The charges of purchases and renewals.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::Bool;
use diesel_async::RunQueryDsl;
use kernel::{DomainId, OrgId, Time};
use store::{Connection, Prepared, Result};
use uuid::Uuid;

use crate::model::{ChargePurpose, ChargeState};
use crate::schema::charges;

/// A charge.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = charges)]
pub struct ChargeRecord {
    pub id: Uuid,
    #[diesel(column_name = org_id)]
    pub org: OrgId,
    #[diesel(column_name = domain_id)]
    pub domain: DomainId,
    pub name: String,
    pub purpose: ChargePurpose,
    /// The expiry that a renewal resulted in; `None` for a purchase.
    pub renewed_until: Option<Time>,
    /// In US cents.
    pub cents: i64,
    /// The provider's draft order.
    pub order_id: Option<String>,
    pub state: ChargeState,
    pub created_at: Time,
}

/// The condition of the index of unpaid renewals.
const UNPAID_RENEWAL: &str = "purpose = 'renewal' AND state IN ('pending', 'declined', 'unbilled')";

/// The unpaid renewals that are not charged at the moment. Implies the condition of the index of unpaid renewals.
const UNCHARGED_RENEWAL: &str = "purpose = 'renewal' AND state IN ('declined', 'unbilled')";

/// Implies the condition of the index of renewals.
const UNBILLED_RENEWAL: &str = "purpose = 'renewal' AND state = 'unbilled'";

/// Implies the condition of the index of renewals.
const PENDING_RENEWAL: &str = "purpose = 'renewal' AND state = 'pending'";

/// Charges on a [`store::Connection`].
pub trait ChargeRepository {
    /// Inserts a charge. Returns false if the purchase or the renewal already has one.
    async fn charge_insert(&mut self, charge: &ChargeRecord) -> Result<bool>;

    /// Returns a charge.
    async fn charge_find(&mut self, id: Uuid) -> Result<Option<ChargeRecord>>;

    /// Returns the renewals that the organization must pay before it renews this domain, oldest first: the renewals of
    /// any of its domains whose charge is pending or was declined, and the unbilled renewals of this domain.
    async fn charges_before_renewal(&mut self, org: OrgId, domain: DomainId) -> Result<Vec<ChargeRecord>>;

    /// Returns the declined and unbilled renewals of all organizations, oldest first.
    async fn charges_unpaid(&mut self, limit: i64) -> Result<Vec<ChargeRecord>>;

    /// Makes the unbilled renewals of a domain pending, and returns their ids.
    async fn charges_order_unbilled(&mut self, domain: DomainId) -> Result<Vec<Uuid>>;

    /// Cancels the unbilled renewals of a domain until a time after `last`; all if `last` is `None`. Returns their
    /// number.
    async fn charges_cancel_unbilled(&mut self, domain: DomainId, last: Option<Time>) -> Result<usize>;

    /// Returns the pending renewals of a domain until a time after `last`.
    async fn charges_pending_after(&mut self, domain: DomainId, last: Time) -> Result<Vec<Uuid>>;

    /// Stores the draft order of a charge, unless the charge already has one. Returns the stored order.
    async fn charge_set_order(&mut self, id: Uuid, order_id: &str) -> Result<Option<String>>;

    /// Removes this draft order from a charge.
    async fn charge_remove_order(&mut self, id: Uuid, order_id: &str) -> Result<()>;

    /// Changes the state of a charge. Returns false if its state is not `from`.
    async fn charge_move(&mut self, id: Uuid, from: ChargeState, to: ChargeState) -> Result<bool>;

    /// Records that the order of a charge is paid. Returns false if the charge is canceled or refunded.
    async fn charge_set_paid(&mut self, id: Uuid) -> Result<bool>;
}

impl ChargeRepository for Connection {
    async fn charge_insert(&mut self, charge: &ChargeRecord) -> Result<bool> {
        let insert = diesel::insert_into(charges::table).values(charge).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn charge_find(&mut self, id: Uuid) -> Result<Option<ChargeRecord>> {
        Ok(charges::table.find(id).select(ChargeRecord::as_select()).first(self).await.optional()?)
    }

    async fn charges_before_renewal(&mut self, org: OrgId, domain: DomainId) -> Result<Vec<ChargeRecord>> {
        let unpaid = charges::table
            .filter(sql::<Bool>(UNPAID_RENEWAL))
            .filter(charges::org_id.eq(org))
            .filter(charges::state.ne(ChargeState::Unbilled).or(charges::domain_id.eq(domain)));
        let oldest = unpaid.order((charges::created_at, charges::id)).select(ChargeRecord::as_select());
        Ok(oldest.load(self).await?)
    }

    async fn charges_unpaid(&mut self, limit: i64) -> Result<Vec<ChargeRecord>> {
        let unpaid = charges::table.filter(sql::<Bool>(UNCHARGED_RENEWAL));
        let oldest = unpaid.order((charges::created_at, charges::id)).limit(limit);
        Ok(oldest.select(ChargeRecord::as_select()).load(self).await?)
    }

    async fn charges_order_unbilled(&mut self, domain: DomainId) -> Result<Vec<Uuid>> {
        let unbilled = charges::table.filter(sql::<Bool>(UNBILLED_RENEWAL)).filter(charges::domain_id.eq(domain));
        let order = diesel::update(unbilled).set(charges::state.eq(ChargeState::Pending));
        Ok(order.returning(charges::id).get_results(self).await?)
    }

    async fn charges_cancel_unbilled(&mut self, domain: DomainId, last: Option<Time>) -> Result<usize> {
        let unbilled = charges::table.filter(sql::<Bool>(UNBILLED_RENEWAL)).filter(charges::domain_id.eq(domain));
        let canceled = charges::state.eq(ChargeState::Canceled);
        Ok(match last {
            Some(last) => {
                let later = unbilled.filter(charges::renewed_until.gt(last).assume_not_null());
                diesel::update(later).set(canceled).execute(self).await?
            }
            None => diesel::update(unbilled).set(canceled).execute(self).await?,
        })
    }

    async fn charges_pending_after(&mut self, domain: DomainId, last: Time) -> Result<Vec<Uuid>> {
        let pending = charges::table.filter(sql::<Bool>(PENDING_RENEWAL)).filter(charges::domain_id.eq(domain));
        let later = pending.filter(charges::renewed_until.gt(last).assume_not_null());
        Ok(later.select(charges::id).load(self).await?)
    }

    async fn charge_set_order(&mut self, id: Uuid, order_id: &str) -> Result<Option<String>> {
        let new = charges::table.filter(charges::id.eq(id).and(charges::order_id.is_null()));
        Prepared(diesel::update(new).set(charges::order_id.eq(order_id))).execute(self).await?;
        let stored = charges::table.find(id).select(charges::order_id);
        Ok(stored.first::<Option<String>>(self).await.optional()?.flatten())
    }

    async fn charge_remove_order(&mut self, id: Uuid, order_id: &str) -> Result<()> {
        let row = charges::table.filter(charges::id.eq(id).and(charges::order_id.eq(order_id)));
        Prepared(diesel::update(row).set(charges::order_id.eq(None::<String>))).execute(self).await?;
        Ok(())
    }

    async fn charge_move(&mut self, id: Uuid, from: ChargeState, to: ChargeState) -> Result<bool> {
        let row = charges::table.filter(charges::id.eq(id).and(charges::state.eq(from)));
        Ok(Prepared(diesel::update(row).set(charges::state.eq(to))).execute(self).await? == 1)
    }

    async fn charge_set_paid(&mut self, id: Uuid) -> Result<bool> {
        let is_final = charges::state.eq(ChargeState::Canceled).or(charges::state.eq(ChargeState::Refunded));
        let row = charges::table.filter(charges::id.eq(id).and(diesel::dsl::not(is_final)));
        Ok(Prepared(diesel::update(row).set(charges::state.eq(ChargeState::Paid))).execute(self).await? == 1)
    }
}
