//! Retention, and the deletion of purged projects' mail.

use kernel::{MailId, Plan, ProjectId, Time, error_chain};
use store::{BATCH_SIZE, Connection, is_full_batch};

use super::{Mail, Result};
use crate::repository::{
    DeletedMessages, DeliveryRepository as _, MailboxRepository as _, MessageRepository as _,
    NotificationRepository as _, SuppressionRepository as _,
};

const DAY: i64 = 24 * 3600;

/// The number of months for which partitions are created in advance.
const MONTHS_AHEAD: i32 = 2;

/// The number of days after which an empty partition of a past month is dropped.
const PARTITION_DAYS: i64 = 31;

/// The age of the ids up to which messages without a row are found, in days. The job runs once a day.
const ORPHAN_DAYS: i64 = 7;

/// The messages that are looked up in the log at once.
const ORPHAN_BATCH: usize = 500;

/// The suppressions that a project keeps. They are counted once an hour.
const MAX_SUPPRESSIONS: i64 = 20_000;

/// After this number of consecutive failures, a run stops, because the others would probably fail too.
const MAX_FAILURES: usize = 10;

impl Mail {
    /// Starts the deletion of the mail of purged projects, in the transaction that purges them.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn purge(&self, tx: &mut Connection, projects: &[ProjectId]) -> store::Result<()> {
        tx.mailbox_mark_purged(projects, self.store.clock_rng().now()).await
    }

    /// Creates partitions for the next months, and drops empty partitions of past months.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`].
    pub async fn maintain_partitions(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let mut connection = self.store.connection().await?;
        connection.partition_create(now, MONTHS_AHEAD).await?;
        Ok(connection.partition_drop(now.plus_seconds(-PARTITION_DAYS * DAY)).await?)
    }

    /// Deletes mail whose retention is over, with its raw messages, and suppressions above the limit.
    ///
    /// # Errors
    /// Returns [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_old(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        for (project, plan) in self.mailboxes(now).await? {
            let trimmed = self.store.connection().await?.suppression_trim(project, MAX_SUPPRESSIONS).await?;
            if trimmed > 0 {
                tracing::info!(%project, trimmed, "deleted the oldest suppressions of a project");
            }
            // The mail of a deleted project is deleted with the project.
            let Some(plan) = plan else { continue };
            let days = i64::from(self.limits.for_plan(plan).mail_log_days);
            self.delete_before(project, now.plus_seconds(-days * DAY)).await?;
        }
        Ok(())
    }

    /// Deletes the raw messages that have no row in the log, because their submission was refused after the message was
    /// stored, the mail node did not commit them, or the process was killed. Recent messages can belong to a submission
    /// or a hand-over in progress. If the mail node commits later, it uploads the message again first.
    ///
    /// # Errors
    /// Returns [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_orphans(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let since = MailId::earliest_at(now.plus_seconds(-ORPHAN_DAYS * DAY));
        let before = now.plus_seconds(-DAY);
        for (project, _) in self.mailboxes(now).await? {
            let messages = self.raws.list(project, since, before).await?;
            for batch in messages.chunks(ORPHAN_BATCH) {
                let known = self.store.connection().await?.message_list_known(batch).await?;
                for orphan in batch.iter().filter(|id| !known.contains(id)) {
                    self.delete_orphan(project, *orphan, before).await?;
                }
            }
        }
        Ok(())
    }

    /// Deletes a raw message that had no row in the log, unless it was uploaded again or committed after it was listed.
    async fn delete_orphan(&self, project: ProjectId, mail: MailId, before: Time) -> Result<()> {
        let known = self.store.connection().await?.message_find(mail).await?;
        if known.is_none() && self.raws.stat(project, mail).await?.is_some_and(|raw| raw.written_at < before) {
            tracing::info!(%project, %mail, "deleting a message that is not in the log");
            self.raws.delete(project, mail).await?;
        }
        Ok(())
    }

    /// Returns the mailboxes of projects that were not purged, with the plans that determine how long mail is kept.
    async fn mailboxes(&self, now: Time) -> Result<Vec<(ProjectId, Option<Plan>)>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|(project, _)| *project);
            let page = self.store.connection().await?.mailbox_list(after, BATCH_SIZE, now).await?;
            let is_last = !is_full_batch(page.len());
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Deletes the mail of all purged projects. If the mail of a project cannot be deleted, logs the error and continues
    /// with the others.
    ///
    /// # Errors
    /// Returns the last error of a project: [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_deleted(&self) -> Result<()> {
        let (mut result, mut skipped, mut failures) = (Ok(()), 0, 0);
        loop {
            let projects = self.store.connection().await?.mailbox_list_purged(BATCH_SIZE, skipped).await?;
            for project in &projects {
                match self.delete_mailbox(*project).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        tracing::warn!(%project, error = %error_chain(&error), "failed to delete a project's mail");
                        (skipped, failures, result) = (skipped + 1, failures + 1, Err(error));
                    }
                }
                if failures == MAX_FAILURES {
                    return result;
                }
            }
            if !is_full_batch(projects.len()) {
                return result;
            }
        }
    }

    async fn delete_mailbox(&self, project: ProjectId) -> Result<()> {
        // A raw message can exist without a row, if a process was killed between storing the message and committing the
        // row.
        self.raws.delete_project(project).await?;
        self.delete_before(project, self.store.clock_rng().now().plus_seconds(1)).await?;
        let mut connection = self.store.connection().await?;
        connection.suppression_purge(project).await?;
        Ok(connection.mailbox_delete(project).await?)
    }

    /// Deletes the mail of a project that is older than this time. Deletes a raw message before its row, so that a
    /// killed process leaves no message without a row.
    async fn delete_before(&self, project: ProjectId, before: Time) -> Result<()> {
        loop {
            let old = self.store.connection().await?.message_list_old(project, before, BATCH_SIZE).await?;
            for mail in &old {
                self.raws.delete(project, *mail).await?;
            }
            self.delete_rows(project, &old).await?;
            if !is_full_batch(old.len()) {
                return Ok(());
            }
        }
    }

    async fn delete_rows(&self, project: ProjectId, mails: &[MailId]) -> Result<()> {
        if mails.is_empty() {
            return Ok(());
        }
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                tx.delivery_delete(mails).await?;
                let DeletedMessages { bytes, relay_ids } = tx.message_delete(mails).await?;
                tx.notification_purge(&relay_ids).await?;
                Ok(tx.mailbox_subtract(project, bytes).await?)
            })
            .await
    }
}
