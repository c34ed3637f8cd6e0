//! Retention, and the deletion of purged projects' mail.

use kernel::{MailId, ProjectId, Time};
use store::{BATCH_SIZE, Connection, is_full_batch};

use super::{Mail, Result};
use crate::repository::{
    DeliveryRepository as _, MailboxRepository as _, MessageRepository as _, SuppressionRepository as _,
};

const DAY: i64 = 24 * 3600;

/// The months for which partitions are created ahead.
const MONTHS_AHEAD: i32 = 2;

/// The days after which an empty partition of a past month is dropped.
const PARTITION_DAYS: i64 = 31;

/// The days after which an upload without a commit is deleted. The mail node uploads a message again before it commits.
const UPLOAD_DAYS: i64 = 7;

/// The most purged projects of one run.
const PROJECTS: i64 = 100;

impl Mail {
    /// Begins to delete the mail of purged projects, in the transaction that purges them.
    ///
    /// # Errors
    /// Returns an error if Postgres is unavailable.
    pub async fn purge(&self, tx: &mut Connection, projects: &[ProjectId]) -> store::Result<()> {
        tx.mailbox_mark_purged(projects, self.store.clock_rng().now()).await
    }

    /// Creates partitions ahead, and drops empty partitions of past months.
    ///
    /// # Errors
    /// Returns [`crate::MailError::Store`].
    pub async fn maintain_partitions(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let mut connection = self.store.connection().await?;
        connection.partition_create(now, MONTHS_AHEAD).await?;
        Ok(connection.partition_drop(now.plus_seconds(-PARTITION_DAYS * DAY)).await?)
    }

    /// Deletes mail that is older than the plan keeps it, with its raw messages, and uploads that were never committed.
    ///
    /// # Errors
    /// Returns [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_old(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let mut after = None;
        loop {
            let mailboxes = self.store.connection().await?.mailbox_list(after, BATCH_SIZE).await?;
            after = mailboxes.last().map(|(project, _)| *project);
            for (project, plan) in &mailboxes {
                // The mail of a deleted project is deleted with the project.
                let Some(plan) = plan else { continue };
                let days = i64::from(self.limits.for_plan(*plan).mail_log_days);
                self.delete_before(*project, now.plus_seconds(-days * DAY)).await?;
            }
            if !is_full_batch(mailboxes.len()) {
                break;
            }
        }
        self.raws.discard_old(now.plus_seconds(-UPLOAD_DAYS * DAY)).await.map(drop)
    }

    /// Deletes the mail of purged projects.
    ///
    /// # Errors
    /// Returns [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_deleted(&self) -> Result<()> {
        for project in self.store.connection().await?.mailbox_list_purged(PROJECTS).await? {
            // A raw message can exist without a row, if a process was killed after it stored the message and before it
            // stored the row.
            self.raws.delete_project(project).await?;
            self.delete_before(project, self.store.clock_rng().now().plus_seconds(1)).await?;
            let mut connection = self.store.connection().await?;
            connection.suppression_purge(project).await?;
            connection.mailbox_delete(project).await?;
        }
        Ok(())
    }

    /// Deletes the mail of a project from before this time. Deletes the raw message before its row, so that a killed
    /// process does not leave a message without a row.
    async fn delete_before(&self, project: ProjectId, before: Time) -> Result<()> {
        loop {
            let old = self.store.connection().await?.message_list_old(project, before, BATCH_SIZE).await?;
            for mail in &old {
                self.raws.delete(project, *mail).await?;
            }
            self.delete_rows(&old).await?;
            if !is_full_batch(old.len()) {
                return Ok(());
            }
        }
    }

    async fn delete_rows(&self, mails: &[MailId]) -> Result<()> {
        if mails.is_empty() {
            return Ok(());
        }
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                tx.delivery_delete(mails).await?;
                Ok(tx.message_delete(mails).await?)
            })
            .await
    }
}
