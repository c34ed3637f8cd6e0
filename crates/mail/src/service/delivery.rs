//! Delivery of received mail to workers.

use std::time::Duration;

use kernel::{MailId, NodeId, ProjectId, Time};
use store::{BATCH_SIZE, Connection};
use tokio::time::{Instant, timeout_at};

use super::{MAX_DETAIL_CHARS, Mail, Result, one_line};
use crate::error::MailError;
use crate::metrics;
use crate::model::{ClaimedMail, DeliveryResult, MailOutcome};
use crate::raw::RawStream;
use crate::repository::{ClaimLimits, DeliveryClaim, DeliveryRepository as _, MessageRepository as _};

/// The duration of the lease of a claimed mail, in seconds.
const LEASE_SECONDS: i64 = 300;

const CLAIM_LIMITS: ClaimLimits = ClaimLimits { total: 20, per_project: 5 };

/// The delays after the first failed attempts, in seconds. Later attempts follow every hour. A claim that a killed process
/// lost is not a failed attempt.
const BACKOFF_SECONDS: &[i64] = &[5, 15, 60, 300, 900];
const LATER_BACKOFF_SECONDS: i64 = 3600;

/// The interval at which a waiting claim reads the due mails, because a retry becomes due without a wake-up.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

const MAX_WAIT: Duration = Duration::from_secs(30);

impl Mail {
    /// Claims due mail of projects whose home node this is. Waits for the first mail for up to `wait`, but at most for
    /// 30 seconds. `in_progress` contains all mails that the node handles. So its other claims, of a killed process or with
    /// a lost response, end now: until their ends, they would count towards the limit of their projects.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn claim(&self, node: NodeId, in_progress: &[MailId], wait: Duration) -> Result<Vec<ClaimedMail>> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        connection.delivery_release(node, in_progress, now).await?;
        drop(connection);
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        loop {
            // Subscribes before the read, so that it misses no wake-up.
            let wake_up = self.ports.nodes.next_wake_up(node);
            let claimed = self.claim_due(node).await?;
            if !claimed.is_empty() || Instant::now() >= deadline {
                return Ok(claimed);
            }
            if timeout_at(deadline.min(Instant::now() + POLL_INTERVAL), wake_up).await.is_err() {
                tracing::trace!("no wake-up; polling again");
            }
        }
    }

    async fn claim_due(&self, node: NodeId) -> Result<Vec<ClaimedMail>> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        let lease_end = now.plus_seconds(LEASE_SECONDS);
        let claims = connection.delivery_claim(node, now, lease_end, CLAIM_LIMITS).await?;
        Ok(claims.into_iter().map(ClaimedMail::from).collect())
    }

    /// Returns the size and the bytes of a mail that this node has claimed.
    ///
    /// # Errors
    /// Returns [`MailError::MailNotFound`] for a mail that the node has not claimed, [`MailError::NoRawMessage`] or
    /// [`MailError::MailStore`].
    pub async fn claimed_raw(&self, node: NodeId, mail: MailId) -> Result<(u64, RawStream)> {
        let mut connection = self.store.connection().await?;
        let now = self.store.corrected_now(&mut connection).await?;
        let project = connection.delivery_find_claim(node, mail, now).await?;
        drop(connection);
        self.raws.open(project.ok_or(MailError::MailNotFound)?, mail).await
    }

    /// Stores the result of an attempt. Ignores the result of an earlier attempt, or of another node. If more mail of the
    /// project is due, wakes the claim of the node, which can be waiting because the project had reached its limit.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn complete(&self, node: NodeId, mail: MailId, attempt: i32, result: DeliveryResult) -> Result<()> {
        let label = result.label();
        let complete = async |tx: &mut Connection| {
            let now = self.store.corrected_now(tx).await?;
            let Some(project) = record(tx, node, (mail, attempt), result, now).await? else { return Ok(false) };
            if tx.delivery_is_due(project, now).await? {
                self.ports.nodes.wake(tx, node).await?;
            }
            Ok::<_, MailError>(true)
        };
        if self.store.transaction_unaudited(complete).await? {
            metrics::delivery(label);
        }
        Ok(())
    }

    /// Ends the deliveries whose period has ended, for example because the project had no node. The mail stays in the
    /// log.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn expire_deliveries(&self) -> Result<()> {
        loop {
            let expire = async |tx: &mut Connection| {
                let now = self.store.corrected_now(tx).await?;
                let expired = tx.delivery_expire(now, BATCH_SIZE).await?;
                tx.message_append_detail(&expired, "not delivered to a worker in time").await?;
                Ok::<_, MailError>(expired.len())
            };
            if !store::is_full_batch(self.store.transaction_unaudited(expire).await?) {
                break;
            }
        }
        metrics::pending_deliveries(self.store.connection().await?.delivery_count().await?);
        Ok(())
    }
}

/// Stores the result of an attempt, and returns the project of the mail. Returns `None` for an attempt that is not the
/// node's latest.
async fn record(
    tx: &mut Connection,
    node: NodeId,
    (mail, attempt): (MailId, i32),
    result: DeliveryResult,
    now: Time,
) -> Result<Option<ProjectId>> {
    let DeliveryResult::Failed(reason) = result else {
        let project = tx.delivery_complete(node, mail, attempt).await?;
        match result {
            _ if project.is_none() => {}
            DeliveryResult::Rejected(reason) => {
                let reason = one_line(&reason, MAX_DETAIL_CHARS);
                let from = &[MailOutcome::Received];
                tx.message_set_outcome(mail, from, MailOutcome::Rejected, Some(&reason)).await?;
            }
            _ => tx.message_set_detail(mail, None).await?,
        }
        return Ok(project);
    };
    let next = now.plus_seconds(backoff_seconds(tx.delivery_count_failures(mail).await?));
    let retried = tx.delivery_retry(node, mail, attempt, next).await?;
    let last = if retried.is_some() { "" } else { ", the last one," };
    let project = match retried {
        Some(project) => Some(project),
        None => tx.delivery_complete(node, mail, attempt).await?,
    };
    if project.is_some() {
        let detail = one_line(&format!("attempt {attempt}{last} failed: {reason}"), MAX_DETAIL_CHARS);
        tx.message_set_detail(mail, Some(&detail)).await?;
    }
    Ok(project)
}

/// Returns the delay after a failed attempt. `failures` is the number of failed attempts before it.
fn backoff_seconds(failures: i32) -> i64 {
    let at = usize::try_from(failures).unwrap_or_default();
    BACKOFF_SECONDS.get(at).copied().unwrap_or(LATER_BACKOFF_SECONDS)
}

impl DeliveryResult {
    /// Returns the result as a metric label.
    const fn label(&self) -> &'static str {
        match self {
            Self::Handled => "handled",
            Self::Rejected(_) => "rejected",
            Self::NoHandler => "no_handler",
            Self::Failed(_) => "failed",
        }
    }
}

impl From<DeliveryClaim> for ClaimedMail {
    fn from(claim: DeliveryClaim) -> Self {
        let DeliveryClaim { id, project, attempt, sender, recipients, size_bytes } = claim;
        Self { id, project, attempt, from: sender, to: recipients, size_bytes }
    }
}
