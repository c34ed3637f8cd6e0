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

/// Charges on a [`store::Connection`].
pub trait ChargeRepository {
    /// Inserts a charge. Returns false if the purchase or the renewal already has one.
    async fn charge_insert(&mut self, charge: &ChargeRecord) -> Result<bool>;

    /// Returns a charge.
    async fn charge_find(&mut self, id: Uuid) -> Result<Option<ChargeRecord>>;

    /// Returns the organization's oldest renewal whose charge was declined.
    async fn charge_find_declined_renewal(&mut self, org: OrgId) -> Result<Option<ChargeRecord>>;

    /// Stores the draft order of a charge, unless the charge already has one. Returns the stored order.
    async fn charge_set_order(&mut self, id: Uuid, order_id: &str) -> Result<Option<String>>;

    /// Removes this draft order from a charge.
    async fn charge_remove_order(&mut self, id: Uuid, order_id: &str) -> Result<()>;

    /// Changes the state of a charge. Returns false if its state is not `from`.
    async fn charge_move(&mut self, id: Uuid, from: ChargeState, to: ChargeState) -> Result<bool>;
}

impl ChargeRepository for Connection {
    async fn charge_insert(&mut self, charge: &ChargeRecord) -> Result<bool> {
        let insert = diesel::insert_into(charges::table).values(charge).on_conflict_do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn charge_find(&mut self, id: Uuid) -> Result<Option<ChargeRecord>> {
        Ok(charges::table.find(id).select(ChargeRecord::as_select()).first(self).await.optional()?)
    }

    async fn charge_find_declined_renewal(&mut self, org: OrgId) -> Result<Option<ChargeRecord>> {
        let declined = charges::table
            // The condition of the index of declined renewals.
            .filter(sql::<Bool>("purpose = 'renewal' AND state = 'declined'"))
            .filter(charges::org_id.eq(org));
        let oldest = declined.order((charges::created_at, charges::id)).select(ChargeRecord::as_select());
        Ok(oldest.first(self).await.optional()?)
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
}
