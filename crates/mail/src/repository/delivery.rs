//! Deliveries to workers.

use diesel::prelude::*;
use diesel::sql_types::{Array, BigInt, Integer, Text, Timestamptz, Uuid};
use diesel_async::RunQueryDsl;
use kernel::{MailId, NodeId, ProjectId, Time};
use store::{Connection, Prepared, Result};

use crate::schema::deliveries;

/// A received mail that a worker must handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Insertable)]
#[diesel(table_name = deliveries)]
pub struct NewDelivery {
    pub mail_id: MailId,
    pub project_id: ProjectId,
    pub next_attempt_at: Time,
    /// The time after which the mail no longer waits for its first claim.
    pub expires_at: Time,
}

/// A claimed mail.
#[derive(Debug, Clone, PartialEq, Eq, QueryableByName)]
pub struct DeliveryClaim {
    #[diesel(sql_type = Uuid)]
    pub id: MailId,
    #[diesel(sql_type = Uuid)]
    pub project: ProjectId,
    /// The number of the attempt, from 1.
    #[diesel(sql_type = Integer)]
    pub attempt: i32,
    #[diesel(sql_type = Text)]
    pub sender: String,
    #[diesel(sql_type = Array<Text>)]
    pub recipients: Vec<String>,
    #[diesel(sql_type = BigInt)]
    pub size_bytes: i64,
}

/// The limits of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimits {
    /// The maximum number of mails per claim.
    pub total: i32,
    /// The maximum number of mails of one project that are claimed at the same time. So a worker that does not return
    /// cannot delay the mail of other projects.
    pub per_project: i32,
}

/// Deliveries on a [`store::Connection`].
pub trait DeliveryRepository {
    /// Inserts deliveries.
    async fn delivery_insert_all(&mut self, deliveries: &[NewDelivery]) -> Result<()>;

    /// Claims due mails of projects whose home node is this node, until the end of the lease. A mail expires 24 hours
    /// after its first claim.
    async fn delivery_claim(
        &mut self,
        node: NodeId,
        now: Time,
        lease_end: Time,
        limits: ClaimLimits,
    ) -> Result<Vec<DeliveryClaim>>;

    /// Makes the mails that the node has claimed due again, except those in progress.
    async fn delivery_release(&mut self, node: NodeId, in_progress: &[MailId], now: Time) -> Result<()>;

    /// Returns the project of a mail that the node has claimed.
    async fn delivery_find_claim(&mut self, node: NodeId, mail: MailId, now: Time) -> Result<Option<ProjectId>>;

    /// Returns whether a mail of the project is due.
    async fn delivery_is_due(&mut self, project: ProjectId, now: Time) -> Result<bool>;

    /// Returns the number of failed attempts to deliver a mail.
    async fn delivery_count_failures(&mut self, mail: MailId) -> Result<i32>;

    /// Deletes the delivery of a mail if this is the node's latest attempt, and returns the project.
    async fn delivery_complete(&mut self, node: NodeId, mail: MailId, attempt: i32) -> Result<Option<ProjectId>>;

    /// Counts a failed attempt, and schedules another one, if this is the node's latest attempt and the next one would be
    /// before the expiry. Returns the project.
    async fn delivery_retry(
        &mut self,
        node: NodeId,
        mail: MailId,
        attempt: i32,
        next: Time,
    ) -> Result<Option<ProjectId>>;

    /// Deletes expired deliveries, and returns their mails.
    async fn delivery_expire(&mut self, now: Time, limit: i64) -> Result<Vec<MailId>>;

    /// Deletes the deliveries of mails.
    async fn delivery_delete(&mut self, mails: &[MailId]) -> Result<()>;

    /// Counts the deliveries.
    async fn delivery_count(&mut self) -> Result<i64>;
}

// `waiting` skips through the index from project to project, so that the cost depends on the number of projects with
// waiting mail, not on the number of projects. `home` is materialized, so that Postgres locks only mails of the node.
// Selects the due mails per project, so that a project with many mails does not delay the others. Because of the array,
// Postgres does not execute the subquery for each row.
const CLAIM: &str = "WITH RECURSIVE waiting AS (
        (SELECT project_id FROM mail.deliveries ORDER BY project_id LIMIT 1)
        UNION ALL
        SELECT (SELECT project_id FROM mail.deliveries WHERE project_id > w.project_id ORDER BY project_id LIMIT 1)
        FROM waiting w WHERE w.project_id IS NOT NULL),
    home AS MATERIALIZED (
        SELECT p.id FROM waiting w JOIN mail.projects p ON p.id = w.project_id
        WHERE p.home_node_id = $1 AND p.email_domain IS NOT NULL)
    UPDATE mail.deliveries d SET attempts = d.attempts + 1, node_id = $1, next_attempt_at = $3,
        expires_at = CASE d.attempts WHEN 0 THEN $2 + interval '24 hours' ELSE d.expires_at END
    FROM mail.messages m
    WHERE m.id = d.mail_id AND d.mail_id = ANY (ARRAY(
        SELECT due.mail_id FROM home CROSS JOIN LATERAL (
            SELECT l.mail_id, l.next_attempt_at FROM mail.deliveries l
            WHERE l.project_id = home.id AND l.next_attempt_at <= $2 AND l.expires_at > $2
            ORDER BY l.next_attempt_at LIMIT greatest(0, $5 - (
                SELECT count(*) FROM mail.deliveries f
                WHERE f.project_id = home.id AND f.next_attempt_at > $2 AND f.node_id IS NOT NULL))
            FOR UPDATE SKIP LOCKED
        ) due
        ORDER BY due.next_attempt_at LIMIT $4))
    RETURNING d.mail_id AS id, d.project_id AS project, d.attempts AS attempt, m.sender, m.recipients, m.size_bytes";

const EXPIRE: &str = "DELETE FROM mail.deliveries WHERE mail_id = ANY (ARRAY(
        SELECT mail_id FROM mail.deliveries WHERE expires_at <= $1 AND (node_id IS NULL OR next_attempt_at <= $1)
        ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))
    RETURNING mail_id";

#[derive(QueryableByName)]
#[diesel(table_name = deliveries)]
struct Expired {
    mail_id: MailId,
}

impl DeliveryRepository for Connection {
    async fn delivery_insert_all(&mut self, deliveries: &[NewDelivery]) -> Result<()> {
        diesel::insert_into(deliveries::table).values(deliveries).execute(self).await?;
        Ok(())
    }

    async fn delivery_claim(
        &mut self,
        node: NodeId,
        now: Time,
        lease_end: Time,
        limits: ClaimLimits,
    ) -> Result<Vec<DeliveryClaim>> {
        let claim = diesel::sql_query(CLAIM)
            .bind::<Uuid, _>(node)
            .bind::<Timestamptz, _>(now)
            .bind::<Timestamptz, _>(lease_end)
            .bind::<Integer, _>(limits.total)
            .bind::<Integer, _>(limits.per_project);
        Ok(Prepared(claim).load(self).await?)
    }

    async fn delivery_release(&mut self, node: NodeId, in_progress: &[MailId], now: Time) -> Result<()> {
        let claimed = deliveries::node_id.eq(node).and(deliveries::next_attempt_at.gt(now));
        let lost = deliveries::table.filter(claimed.and(deliveries::mail_id.ne_all(in_progress)));
        let change = (deliveries::node_id.eq(None::<NodeId>), deliveries::next_attempt_at.eq(now));
        Prepared(diesel::update(lost).set(change)).execute(self).await?;
        Ok(())
    }

    async fn delivery_find_claim(&mut self, node: NodeId, mail: MailId, now: Time) -> Result<Option<ProjectId>> {
        let claimed = deliveries::node_id.eq(node).and(deliveries::next_attempt_at.gt(now));
        let query = deliveries::table.find(mail).filter(claimed).select(deliveries::project_id);
        Ok(query.first(self).await.optional()?)
    }

    async fn delivery_is_due(&mut self, project: ProjectId, now: Time) -> Result<bool> {
        let due = deliveries::project_id.eq(project).and(deliveries::next_attempt_at.le(now));
        let due = deliveries::table.filter(due.and(deliveries::expires_at.gt(now)));
        Ok(diesel::select(diesel::dsl::exists(due)).get_result(self).await?)
    }

    async fn delivery_count_failures(&mut self, mail: MailId) -> Result<i32> {
        let failures = deliveries::table.find(mail).select(deliveries::failures);
        Ok(failures.first(self).await.optional()?.unwrap_or_default())
    }

    async fn delivery_complete(&mut self, node: NodeId, mail: MailId, attempt: i32) -> Result<Option<ProjectId>> {
        let latest = deliveries::mail_id.eq(mail).and(deliveries::node_id.eq(node));
        let deleted = diesel::delete(deliveries::table.filter(latest.and(deliveries::attempts.eq(attempt))));
        Ok(deleted.returning(deliveries::project_id).get_result(self).await.optional()?)
    }

    async fn delivery_retry(
        &mut self,
        node: NodeId,
        mail: MailId,
        attempt: i32,
        next: Time,
    ) -> Result<Option<ProjectId>> {
        let latest = deliveries::mail_id.eq(mail).and(deliveries::node_id.eq(node));
        let latest = latest.and(deliveries::attempts.eq(attempt)).and(deliveries::expires_at.gt(next));
        let change = (
            deliveries::node_id.eq(None::<NodeId>),
            deliveries::failures.eq(deliveries::failures + 1),
            deliveries::next_attempt_at.eq(next),
        );
        let update = diesel::update(deliveries::table.filter(latest)).set(change).returning(deliveries::project_id);
        Ok(Prepared(update).get_result(self).await.optional()?)
    }

    async fn delivery_expire(&mut self, now: Time, limit: i64) -> Result<Vec<MailId>> {
        let expire = diesel::sql_query(EXPIRE).bind::<Timestamptz, _>(now).bind::<BigInt, _>(limit);
        let expired: Vec<Expired> = Prepared(expire).load(self).await?;
        Ok(expired.into_iter().map(|row| row.mail_id).collect())
    }

    async fn delivery_delete(&mut self, mails: &[MailId]) -> Result<()> {
        diesel::delete(deliveries::table.filter(deliveries::mail_id.eq_any(mails))).execute(self).await?;
        Ok(())
    }

    async fn delivery_count(&mut self) -> Result<i64> {
        Ok(deliveries::table.count().get_result(self).await?)
    }
}
