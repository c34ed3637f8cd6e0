//! The notifications of the relay's service.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use kernel::Time;
use serde_json::Value;
use store::{Connection, Prepared, Result};

use crate::schema::{messages, notifications};

/// A notification whose event waits for the relay's response.
#[derive(Debug, Clone, PartialEq, Eq, Queryable)]
pub struct PendingNotification {
    pub id: String,
    pub event: Option<Value>,
}

/// Notifications on a [`store::Connection`].
pub trait NotificationRepository {
    /// Records a notification. Returns false if it was recorded before.
    async fn notification_insert(&mut self, id: &str, relay_id: &str, at: Time) -> Result<bool>;

    /// Stores the event of a notification until a mail has the relay's id.
    async fn notification_set_pending(&mut self, id: &str, event: &Value) -> Result<()>;

    /// Returns ids of the relay for which an event is stored, and which a mail has by now.
    async fn notification_list_pending(&mut self) -> Result<Vec<String>>;

    /// Locks and returns the notifications whose event is stored for this id of the relay.
    async fn notification_lock_pending(&mut self, relay_id: &str) -> Result<Vec<PendingNotification>>;

    /// Deletes the stored events of these notifications. The notifications stay recorded.
    async fn notification_clear(&mut self, ids: &[String]) -> Result<()>;

    /// Deletes the stored events that were received before this time.
    async fn notification_expire(&mut self, before: Time) -> Result<()>;
}

/// The most notifications of one transaction, and the most ids of a list.
const BATCH: i64 = 100;

impl NotificationRepository for Connection {
    async fn notification_insert(&mut self, id: &str, relay_id: &str, at: Time) -> Result<bool> {
        let row = (notifications::id.eq(id), notifications::relay_id.eq(relay_id), notifications::received_at.eq(at));
        let insert = diesel::insert_into(notifications::table).values(row).on_conflict_do_nothing();
        Ok(Prepared(insert).execute(self).await? == 1)
    }

    async fn notification_set_pending(&mut self, id: &str, event: &Value) -> Result<()> {
        let update = diesel::update(notifications::table.find(id)).set(notifications::pending.eq(event));
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn notification_list_pending(&mut self) -> Result<Vec<String>> {
        let same_id = messages::relay_id.eq(notifications::relay_id.nullable());
        let known = diesel::dsl::exists(messages::table.filter(same_id).select(messages::id));
        let pending = notifications::table.filter(notifications::pending.is_not_null().and(known));
        Ok(pending.select(notifications::relay_id).distinct().limit(BATCH).load(self).await?)
    }

    async fn notification_lock_pending(&mut self, relay_id: &str) -> Result<Vec<PendingNotification>> {
        let pending = notifications::relay_id.eq(relay_id).and(notifications::pending.is_not_null());
        let query = notifications::table.filter(pending).select((notifications::id, notifications::pending));
        Ok(query.limit(BATCH).for_update().skip_locked().load(self).await?)
    }

    async fn notification_clear(&mut self, ids: &[String]) -> Result<()> {
        let applied = notifications::table.filter(notifications::id.eq_any(ids));
        diesel::update(applied).set(notifications::pending.eq(None::<Value>)).execute(self).await?;
        Ok(())
    }

    async fn notification_expire(&mut self, before: Time) -> Result<()> {
        let old = notifications::pending.is_not_null().and(notifications::received_at.lt(before));
        let update = diesel::update(notifications::table.filter(old)).set(notifications::pending.eq(None::<Value>));
        update.execute(self).await?;
        Ok(())
    }
}
