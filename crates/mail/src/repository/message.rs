//! The log.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{MailId, Paging, ProjectId, Time};
use store::{Connection, Prepared, Result, newest_first};

use super::MailBytes;
use crate::model::{MailDirection, MailLogEntry, MailOutcome};
use crate::schema::messages;

/// The received mails that are counted. Any sender can increase their number, and a count of millions takes seconds.
const MAX_RECEIVED_COUNT: i64 = 100_000;

/// A mail in the log.
#[derive(Debug, Clone, PartialEq, Eq, Insertable, Queryable, Selectable)]
#[diesel(table_name = messages)]
pub struct MessageRecord {
    pub id: MailId,
    #[diesel(column_name = project_id)]
    pub project: ProjectId,
    pub direction: MailDirection,
    pub sender: String,
    pub recipients: Vec<String>,
    pub subject: Option<String>,
    pub outcome: MailOutcome,
    pub detail: Option<String>,
    pub size_bytes: i64,
    /// The bytes that count towards the limit of the project.
    pub stored_bytes: i64,
    pub spf: Option<String>,
    pub has_raw: bool,
    pub created_at: Time,
}

/// The numbers of a project's recent mails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct MessageCounts {
    /// The number of mails that were submitted in the last hour, without those to suppressed recipients.
    #[diesel(sql_type = BigInt)]
    pub sent_last_hour: i64,
    #[diesel(sql_type = BigInt)]
    pub sent_last_day: i64,
    /// At most 100,000.
    #[diesel(sql_type = BigInt)]
    pub received_last_day: i64,
}

/// The numbers of a project's submissions in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, QueryableByName)]
pub struct SubmittedCounts {
    /// The number of mails, without those to suppressed recipients.
    #[diesel(sql_type = BigInt)]
    pub sent: i64,
    /// The number of mails to suppressed recipients.
    #[diesel(sql_type = BigInt)]
    pub suppressed: i64,
}

/// The deleted mails.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct DeletedMessages {
    /// The bytes that counted towards the limits of their project.
    #[diesel(embed)]
    pub bytes: MailBytes,
    #[diesel(sql_type = Array<Text>)]
    pub relay_ids: Vec<String>,
}

/// The log on a [`store::Connection`].
pub trait MessageRepository {
    /// Inserts a mail. Returns false if the id exists.
    async fn message_insert(&mut self, message: &MessageRecord) -> Result<bool>;

    /// Inserts mails. Returns the ids of those that did not exist.
    async fn message_insert_all(&mut self, messages: &[MessageRecord]) -> Result<Vec<MailId>>;

    /// Returns the mail with this id.
    async fn message_find(&mut self, id: MailId) -> Result<Option<MessageRecord>>;

    /// Returns the mails of a project, newest first.
    async fn message_list(
        &mut self,
        project: ProjectId,
        direction: Option<MailDirection>,
        paging: &Paging<MailId>,
    ) -> Result<Vec<MessageRecord>>;

    /// Counts the submissions of a project since this time. Unlike [`Self::message_count`], it does not read received
    /// mails.
    async fn message_count_submitted(&mut self, project: ProjectId, since: Time) -> Result<SubmittedCounts>;

    /// Counts the recent mails of a project.
    async fn message_count(&mut self, project: ProjectId, now: Time) -> Result<MessageCounts>;

    /// Stores the outcome of a mail, and `detail` if it is set, provided that the current outcome is one of `from`.
    async fn message_set_outcome(
        &mut self,
        id: MailId,
        from: &[MailOutcome],
        outcome: MailOutcome,
        detail: Option<&str>,
    ) -> Result<()>;

    /// Stores the relay's id of a mail.
    async fn message_set_relay_id(&mut self, id: MailId, relay_id: &str) -> Result<()>;

    /// Stores the detail of a mail.
    async fn message_set_detail(&mut self, id: MailId, detail: Option<&str>) -> Result<()>;

    /// Appends a text to the detail of each of these mails.
    async fn message_append_detail(&mut self, ids: &[MailId], added: &str) -> Result<()>;

    /// Locks the mails to which the relay gave this id until the transaction ends, and returns them, newest first.
    async fn message_lock_by_relay_id(&mut self, relay_id: &str) -> Result<Vec<MessageRecord>>;

    /// Returns mails of a project that are older than `before`, with ids above `after`, in the order of the ids.
    async fn message_list_old(
        &mut self,
        project: ProjectId,
        before: Time,
        after: MailId,
        limit: i64,
    ) -> Result<Vec<MailId>>;

    /// Returns those of these ids that are in the log.
    async fn message_list_known(&mut self, ids: &[MailId]) -> Result<Vec<MailId>>;

    /// Deletes mails.
    async fn message_delete(&mut self, ids: &[MailId]) -> Result<DeletedMessages>;

    /// Creates the partitions for the month of `now` and the next `months` months.
    async fn partition_create(&mut self, now: Time, months: i32) -> Result<()>;

    /// Drops the empty partitions of months that ended before this time.
    async fn partition_drop(&mut self, before: Time) -> Result<()>;
}

// With the order, Postgres always uses the index, and reads no more rows than it counts.
const COUNT: &str = "SELECT count(*) FILTER (WHERE created_at > $3) AS sent_last_hour, count(*) AS sent_last_day,
        (SELECT count(*) FROM (
            SELECT FROM mail.messages WHERE project_id = $1 AND direction = 'in' AND created_at > $2
            ORDER BY created_at DESC LIMIT $4) received) AS received_last_day
    FROM mail.messages WHERE project_id = $1 AND direction = 'out' AND outcome <> 'rejected' AND created_at > $2";

const COUNT_SUBMITTED: &str = "SELECT count(*) FILTER (WHERE outcome <> 'rejected') AS sent,
        count(*) FILTER (WHERE outcome = 'rejected') AS suppressed
    FROM mail.messages WHERE project_id = $1 AND direction = 'out' AND created_at > $2";

const SET_OUTCOME: &str = "UPDATE mail.messages SET outcome = $3, detail = coalesce($4, detail)
    WHERE id = $1 AND outcome = ANY ($2)";

const APPEND_DETAIL: &str =
    "UPDATE mail.messages SET detail = left(concat_ws('; ', detail, $2), 2000) WHERE id = ANY ($1)";

const DELETE: &str = "WITH deleted AS (DELETE FROM mail.messages WHERE id = ANY ($1) RETURNING *)
    SELECT coalesce(sum(stored_bytes) FILTER (WHERE direction = 'in'), 0)::bigint AS received,
        coalesce(sum(stored_bytes) FILTER (WHERE direction = 'out'), 0)::bigint AS sent,
        coalesce(array_agg(relay_id) FILTER (WHERE relay_id IS NOT NULL), '{}') AS relay_ids
    FROM deleted";

const CREATE_PARTITIONS: &str = "SELECT mail.create_partition((date_trunc('month', $1 AT TIME ZONE 'UTC') \
        + make_interval(months => month))::date) FROM generate_series(0, $2) month";

const DROP_PARTITIONS: &str = "SELECT mail.drop_partitions(($1 AT TIME ZONE 'UTC')::date)";

impl MessageRepository for Connection {
    async fn message_insert(&mut self, message: &MessageRecord) -> Result<bool> {
        let insert = diesel::insert_into(messages::table).values(message);
        Ok(Prepared(insert.on_conflict(messages::id).do_nothing()).execute(self).await? == 1)
    }

    async fn message_insert_all(&mut self, messages: &[MessageRecord]) -> Result<Vec<MailId>> {
        let insert = diesel::insert_into(messages::table).values(messages).on_conflict(messages::id).do_nothing();
        Ok(insert.returning(messages::id).get_results(self).await?)
    }

    async fn message_find(&mut self, id: MailId) -> Result<Option<MessageRecord>> {
        let query = messages::table.find(id).select(MessageRecord::as_select());
        Ok(query.first(self).await.optional()?)
    }

    async fn message_list(
        &mut self,
        project: ProjectId,
        direction: Option<MailDirection>,
        paging: &Paging<MailId>,
    ) -> Result<Vec<MessageRecord>> {
        let all = messages::table.select(MessageRecord::as_select());
        Ok(match direction {
            None => newest_first!(all, messages::project_id = project, messages::id, paging).load(self).await?,
            Some(direction) => {
                let all = all.filter(messages::direction.eq(direction));
                newest_first!(all, messages::project_id = project, messages::id, paging).load(self).await?
            }
        })
    }

    async fn message_count_submitted(&mut self, project: ProjectId, since: Time) -> Result<SubmittedCounts> {
        let query = diesel::sql_query(COUNT_SUBMITTED).bind::<Uuid, _>(project).bind::<Timestamptz, _>(since);
        Ok(Prepared(query).get_result(self).await?)
    }

    async fn message_count(&mut self, project: ProjectId, now: Time) -> Result<MessageCounts> {
        let query = diesel::sql_query(COUNT)
            .bind::<Uuid, _>(project)
            .bind::<Timestamptz, _>(now.plus_seconds(-24 * 3600))
            .bind::<Timestamptz, _>(now.plus_seconds(-3600))
            .bind::<BigInt, _>(MAX_RECEIVED_COUNT);
        Ok(Prepared(query).get_result(self).await?)
    }

    async fn message_set_outcome(
        &mut self,
        id: MailId,
        from: &[MailOutcome],
        outcome: MailOutcome,
        detail: Option<&str>,
    ) -> Result<()> {
        let update = diesel::sql_query(SET_OUTCOME)
            .bind::<Uuid, _>(id)
            .bind::<Array<Text>, _>(from)
            .bind::<Text, _>(outcome)
            .bind::<Nullable<Text>, _>(detail);
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn message_set_relay_id(&mut self, id: MailId, relay_id: &str) -> Result<()> {
        Prepared(diesel::update(messages::table.find(id)).set(messages::relay_id.eq(relay_id))).execute(self).await?;
        Ok(())
    }

    async fn message_set_detail(&mut self, id: MailId, detail: Option<&str>) -> Result<()> {
        // Most mails have no detail before and after: they need no new version of the row.
        let changed = messages::table.find(id).filter(messages::detail.is_distinct_from(detail));
        Prepared(diesel::update(changed).set(messages::detail.eq(detail))).execute(self).await?;
        Ok(())
    }

    async fn message_append_detail(&mut self, ids: &[MailId], added: &str) -> Result<()> {
        let update = diesel::sql_query(APPEND_DETAIL).bind::<Array<Uuid>, _>(ids).bind::<Text, _>(added);
        Prepared(update).execute(self).await?;
        Ok(())
    }

    async fn message_lock_by_relay_id(&mut self, relay_id: &str) -> Result<Vec<MessageRecord>> {
        let query = messages::table.filter(messages::relay_id.eq(relay_id)).select(MessageRecord::as_select());
        Ok(query.order(messages::id.desc()).for_update().load(self).await?)
    }

    async fn message_list_old(
        &mut self,
        project: ProjectId,
        before: Time,
        after: MailId,
        limit: i64,
    ) -> Result<Vec<MailId>> {
        let old = messages::project_id.eq(project).and(messages::created_at.lt(before)).and(messages::id.gt(after));
        let query = messages::table.filter(old.and(messages::direction.eq_any(MailDirection::ALL))).order(messages::id);
        Ok(query.select(messages::id).limit(limit).load(self).await?)
    }

    async fn message_list_known(&mut self, ids: &[MailId]) -> Result<Vec<MailId>> {
        Ok(messages::table.filter(messages::id.eq_any(ids)).select(messages::id).load(self).await?)
    }

    async fn message_delete(&mut self, ids: &[MailId]) -> Result<DeletedMessages> {
        Ok(Prepared(diesel::sql_query(DELETE).bind::<Array<Uuid>, _>(ids)).get_result(self).await?)
    }

    async fn partition_create(&mut self, now: Time, months: i32) -> Result<()> {
        let create = diesel::sql_query(CREATE_PARTITIONS).bind::<Timestamptz, _>(now);
        create.bind::<Integer, _>(months).execute(self).await?;
        Ok(())
    }

    async fn partition_drop(&mut self, before: Time) -> Result<()> {
        diesel::sql_query(DROP_PARTITIONS).bind::<Timestamptz, _>(before).execute(self).await?;
        Ok(())
    }
}

impl From<MessageRecord> for MailLogEntry {
    fn from(record: MessageRecord) -> Self {
        let MessageRecord { id, project: _, direction, sender, recipients, subject, outcome, detail, .. } = record;
        let MessageRecord { size_bytes, spf, has_raw, created_at, .. } = record;
        Self {
            id,
            direction,
            from: sender,
            to: recipients,
            subject,
            outcome,
            detail,
            size_bytes,
            spf,
            has_raw,
            created_at,
        }
    }
}
