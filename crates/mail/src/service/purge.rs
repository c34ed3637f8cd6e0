//! Retention, and the deletion of purged projects' mail.

use kernel::{MailId, Plan, ProjectId, Time, error_chain};
use store::{BATCH_SIZE, Connection, is_full_batch};

use super::{Mail, Result};
use crate::error::MailError;
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

/// After this number of consecutive failures, a run stops, because the mail store is probably unavailable.
const MAX_FAILURES: usize = 9;

/// After this number of consecutive failed messages of a project, a run continues with the next project.
const MAX_FAILURES_IN_PROJECT: usize = 3;

/// The failures of a run, which continues with the other messages and projects.
#[derive(Default)]
struct Failures {
    /// The failures since the last deletion of a message or a mailbox. Many projects have nothing to delete, so their
    /// success does not mean that the mail store is available.
    consecutive: usize,
    /// The number of these failures that are messages of the current project.
    in_project: usize,
    last: Option<MailError>,
}

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

    /// Deletes mail whose retention is over, with its raw messages, and suppressions above the limit. Logs the failure
    /// of a message or a project, and continues with the others.
    ///
    /// # Errors
    /// Returns the last failure: [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_old(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let mut failures = Failures::default();
        for (project, plan) in self.mailboxes(now).await? {
            let result = self.purge_mailbox(project, plan, now, &mut failures).await;
            failures.record(project, result);
            if failures.are_too_many() {
                break;
            }
        }
        failures.result()
    }

    async fn purge_mailbox(
        &self,
        project: ProjectId,
        plan: Option<Plan>,
        now: Time,
        failures: &mut Failures,
    ) -> Result<()> {
        let trimmed = self.store.connection().await?.suppression_trim(project, MAX_SUPPRESSIONS).await?;
        if trimmed > 0 {
            tracing::info!(%project, trimmed, "deleted the oldest suppressions of a project");
        }
        // The mail of a deleted project is deleted with the project.
        let Some(plan) = plan else { return Ok(()) };
        let days = i64::from(self.limits.for_plan(plan).mail_log_days);
        self.delete_before(project, now.plus_seconds(-days * DAY), failures).await?;
        Ok(())
    }

    /// Deletes the raw messages that have no row in the log, because their submission was refused after the message was
    /// stored, the mail node did not commit them, or the process was killed. Recent messages can belong to a submission
    /// or a hand-over in progress. If the mail node commits later, it uploads the message again first. Logs the failure
    /// of a message or a project, and continues with the others.
    ///
    /// # Errors
    /// Returns the last failure: [`crate::MailError::MailStore`] or [`crate::MailError::Store`].
    pub async fn purge_orphans(&self) -> Result<()> {
        let now = self.store.clock_rng().now();
        let since = MailId::earliest_at(now.plus_seconds(-ORPHAN_DAYS * DAY));
        let before = now.plus_seconds(-DAY);
        let mut failures = Failures::default();
        for (project, _) in self.mailboxes(now).await? {
            let result = self.delete_orphans(project, since, before, &mut failures).await;
            failures.record(project, result);
            if failures.are_too_many() {
                break;
            }
        }
        failures.result()
    }

    async fn delete_orphans(
        &self,
        project: ProjectId,
        since: MailId,
        before: Time,
        failures: &mut Failures,
    ) -> Result<()> {
        let messages = self.raws.list(project, since, before).await?;
        for batch in messages.chunks(ORPHAN_BATCH) {
            let known = self.store.connection().await?.message_list_known(batch).await?;
            for orphan in batch.iter().filter(|id| !known.contains(id)) {
                let result = self.delete_orphan(project, *orphan, before).await;
                failures.record_message(project, *orphan, result);
                if failures.are_too_many_in_project() {
                    return Ok(());
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
        let (mut failures, mut kept) = (Failures::default(), 0);
        loop {
            let projects = self.store.connection().await?.mailbox_list_purged(BATCH_SIZE, kept).await?;
            for project in &projects {
                let is_deleted = self.delete_mailbox(*project, &mut failures).await;
                if failures.record(*project, is_deleted) == Some(true) {
                    failures.consecutive = 0;
                } else {
                    kept += 1;
                }
                if failures.are_too_many() {
                    return failures.result();
                }
            }
            if !is_full_batch(projects.len()) {
                return failures.result();
            }
        }
    }

    /// Deletes the mailbox of a purged project. Returns false if a message cannot be deleted.
    async fn delete_mailbox(&self, project: ProjectId, failures: &mut Failures) -> Result<bool> {
        // A raw message can exist without a row, if a process was killed between storing the message and committing the
        // row.
        self.raws.delete_project(project).await?;
        if !self.delete_before(project, self.store.clock_rng().now().plus_seconds(1), failures).await? {
            return Ok(false);
        }
        let mut connection = self.store.connection().await?;
        connection.suppression_purge(project).await?;
        connection.mailbox_delete(project).await?;
        Ok(true)
    }

    /// Deletes the mail of a project that is older than this time. Deletes a raw message before its row, so that a
    /// killed process leaves no message without a row. Returns false if a message cannot be deleted.
    async fn delete_before(&self, project: ProjectId, before: Time, failures: &mut Failures) -> Result<bool> {
        let (mut is_complete, mut after) = (true, MailId::earliest_at(Time::UNIX_EPOCH));
        loop {
            let old = self.store.connection().await?.message_list_old(project, before, after, BATCH_SIZE).await?;
            let mut deleted = Vec::with_capacity(old.len());
            for mail in &old {
                let result = self.raws.delete(project, *mail).await;
                if failures.record_message(project, *mail, result) {
                    deleted.push(*mail);
                }
                if failures.are_too_many_in_project() {
                    break;
                }
            }
            self.delete_rows(project, &deleted).await?;
            is_complete &= deleted.len() == old.len();
            match old.last() {
                Some(last) if is_full_batch(old.len()) && !failures.are_too_many_in_project() => after = *last,
                _ => return Ok(is_complete),
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

impl Failures {
    /// Logs and counts the failure of a message. Returns whether it was deleted.
    fn record_message(&mut self, project: ProjectId, mail: MailId, result: Result<()>) -> bool {
        let Err(error) = result else {
            (self.consecutive, self.in_project) = (0, 0);
            return true;
        };
        tracing::warn!(%project, %mail, error = %error_chain(&error), "failed to delete a raw message");
        self.count(error);
        self.in_project += 1;
        false
    }

    /// Logs and counts another failure of a project. Returns its result.
    fn record<T>(&mut self, project: ProjectId, result: Result<T>) -> Option<T> {
        self.in_project = 0;
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(%project, error = %error_chain(&error), "failed to delete mail of a project");
                self.count(error);
                None
            }
        }
    }

    fn count(&mut self, error: MailError) {
        self.consecutive += 1;
        self.last = Some(error);
    }

    const fn are_too_many(&self) -> bool {
        self.consecutive >= MAX_FAILURES
    }

    const fn are_too_many_in_project(&self) -> bool {
        self.in_project == MAX_FAILURES_IN_PROJECT
    }

    /// Returns the last failure.
    fn result(self) -> Result<()> {
        self.last.map_or(Ok(()), Err)
    }
}
