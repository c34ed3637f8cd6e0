//! The webhooks that were processed.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::Time;
use store::{Connection, Result};

use crate::schema::{unassigned_events, webhooks};

/// An event that belongs to no known organization, for operators.
#[derive(Debug, Clone, PartialEq, Eq, Queryable, Selectable, Insertable)]
#[diesel(table_name = unassigned_events)]
pub struct UnassignedEvent {
    pub webhook_id: String,
    #[diesel(column_name = event)]
    pub kind: String,
    /// The organization, as the event names it.
    pub organization: Option<String>,
    /// The body as it was received.
    pub body: String,
    pub received_at: Time,
}

/// Processed webhooks on a [`store::Connection`].
pub trait WebhookRepository {
    /// Records a webhook. Returns false if it was already processed. Waits for a transaction that is processing it.
    async fn webhook_insert(&mut self, id: &str, kind: &str, at: Time) -> Result<bool>;

    /// Stores an event of an unknown organization.
    async fn unassigned_insert(&mut self, event: &UnassignedEvent) -> Result<()>;

    /// Returns the newest events of unknown organizations.
    async fn unassigned_list(&mut self, limit: i64) -> Result<Vec<UnassignedEvent>>;
}

impl WebhookRepository for Connection {
    async fn webhook_insert(&mut self, id: &str, kind: &str, at: Time) -> Result<bool> {
        let row = (webhooks::id.eq(id), webhooks::event.eq(kind), webhooks::received_at.eq(at));
        let insert = diesel::insert_into(webhooks::table).values(row).on_conflict(webhooks::id).do_nothing();
        Ok(insert.execute(self).await? == 1)
    }

    async fn unassigned_insert(&mut self, event: &UnassignedEvent) -> Result<()> {
        diesel::insert_into(unassigned_events::table).values(event).execute(self).await?;
        Ok(())
    }

    async fn unassigned_list(&mut self, limit: i64) -> Result<Vec<UnassignedEvent>> {
        let query = unassigned_events::table.select(UnassignedEvent::as_select());
        Ok(query
            .order((unassigned_events::received_at.desc(), unassigned_events::webhook_id))
            .limit(limit)
            .load(self)
            .await?)
    }
}
