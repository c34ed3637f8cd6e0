//! The notifications of the relay's service.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Jsonb, Nullable, Text, Timestamptz};
use diesel_async::RunQueryDsl;
use kernel::Time;
use serde_json::Value;
use store::{Connection, Prepared, Result};

use crate::schema::notifications;

/// A notification whose event waits for a mail.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct PendingNotification {
    #[diesel(sql_type = Text)]
    pub id: String,
    #[diesel(sql_type = Jsonb)]
    pub event: Value,
}

#[derive(QueryableByName)]
struct PendingRelayId {
    #[diesel(sql_type = Text)]
    relay_id: String,
}

/// Notifications on a [`store::Connection`].
pub trait NotificationRepository {
    /// Records a notification. Returns false if it was recorded before.
    async fn notification_insert(&mut self, id: &str, relay_id: &str, at: Time) -> Result<bool>;

    /// Stores the event of a notification, or the part of it that belongs to no mail yet.
    async fn notification_set_pending(&mut self, id: &str, event: &Value) -> Result<()>;

    /// Returns the ids of the relay for which an event is stored, and which a mail has by now: those with the newest
    /// events. With a time, considers only events that were received before it.
    async fn notification_list_pending(&mut self, before: Option<Time>) -> Result<Vec<String>>;

    /// Locks and returns the newest notifications whose event is stored for this id of the relay. With a time, considers
    /// only events that were received before it.
    async fn notification_lock_pending(
        &mut self,
        relay_id: &str,
        before: Option<Time>,
    ) -> Result<Vec<PendingNotification>>;

    /// Deletes the stored events of these notifications. The notifications stay recorded.
    async fn notification_clear(&mut self, ids: &[String]) -> Result<()>;

    /// Deletes the notifications whose event is stored, that were received before this time, and whose id of the relay
    /// no mail has.
    async fn notification_expire(&mut self, before: Time) -> Result<()>;

    /// Deletes the notifications with those of these ids of the relay that no mail has, unless their event is stored.
    async fn notification_purge(&mut self, relay_ids: &[String]) -> Result<()>;
}

/// The most notifications of one transaction, and the most ids of a list.
const BATCH: i64 = 100;

const LIST_PENDING: &str = "SELECT relay_id FROM mail.notifications n
    WHERE pending IS NOT NULL AND ($1 IS NULL OR received_at < $1)
        AND EXISTS (SELECT FROM mail.messages m WHERE m.relay_id = n.relay_id)
    GROUP BY relay_id ORDER BY max(received_at) DESC LIMIT $2";

const LOCK_PENDING: &str = "SELECT id, pending AS event FROM mail.notifications
    WHERE relay_id = $1 AND pending IS NOT NULL AND ($2 IS NULL OR received_at < $2)
    ORDER BY received_at DESC LIMIT $3 FOR UPDATE SKIP LOCKED";

const EXPIRE: &str = "DELETE FROM mail.notifications n
    WHERE pending IS NOT NULL AND received_at < $1
        AND NOT EXISTS (SELECT FROM mail.messages m WHERE m.relay_id = n.relay_id)";

/// Because of the limit, Postgres searches the index for each id. For `NOT EXISTS`, it can choose to read all mails.
const PURGE: &str = "DELETE FROM mail.notifications WHERE pending IS NULL AND relay_id = ANY (ARRAY(
        SELECT deleted FROM unnest($1) deleted
        WHERE (SELECT m.relay_id FROM mail.messages m WHERE m.relay_id = deleted LIMIT 1) IS NULL))";

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

    async fn notification_list_pending(&mut self, before: Option<Time>) -> Result<Vec<String>> {
        let list = diesel::sql_query(LIST_PENDING).bind::<Nullable<Timestamptz>, _>(before);
        let listed: Vec<PendingRelayId> = Prepared(list.bind::<BigInt, _>(BATCH)).load(self).await?;
        Ok(listed.into_iter().map(|row| row.relay_id).collect())
    }

    async fn notification_lock_pending(
        &mut self,
        relay_id: &str,
        before: Option<Time>,
    ) -> Result<Vec<PendingNotification>> {
        let lock = diesel::sql_query(LOCK_PENDING).bind::<Text, _>(relay_id).bind::<Nullable<Timestamptz>, _>(before);
        Ok(Prepared(lock.bind::<BigInt, _>(BATCH)).load(self).await?)
    }

    async fn notification_clear(&mut self, ids: &[String]) -> Result<()> {
        let applied = notifications::table.filter(notifications::id.eq_any(ids));
        diesel::update(applied).set(notifications::pending.eq(None::<Value>)).execute(self).await?;
        Ok(())
    }

    async fn notification_expire(&mut self, before: Time) -> Result<()> {
        diesel::sql_query(EXPIRE).bind::<Timestamptz, _>(before).execute(self).await?;
        Ok(())
    }

    async fn notification_purge(&mut self, relay_ids: &[String]) -> Result<()> {
        Prepared(diesel::sql_query(PURGE).bind::<Array<Text>, _>(relay_ids)).execute(self).await?;
        Ok(())
    }
}
