//! Retention, and the deletion of purged projects' mail.

use std::collections::HashSet;

use futures_util::TryStreamExt as _;
use futures_util::stream::TryChunksError;
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

/// After this number of consecutive failures, a run checks whether the mail store and Postgres are available.
const MAX_FAILURES: usize = 9;

/// The failures of a run, which continues with the other messages and projects.
#[derive(Default)]
struct Failures {
    /// The failures since the last deletion of a message or a mailbox, or since the last successful check. Many projects
    /// have nothing to delete, so their success does not mean that the mail store is available.
    consecutive: usize,
    /// The last failure, and its project.
    last: Option<(ProjectId, MailError)>,
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
            self.check_stores(&mut failures).await?;
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
            self.check_stores(&mut failures).await?;
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
        let mut batches = self.raws.list(project, since, Some(before)).try_chunks(ORPHAN_BATCH);
        while let Some(batch) = batches.try_next().await.map_err(|TryChunksError(_, error)| error)? {
            let known = self.store.connection().await?.message_list_known(&batch).await?;
            for orphan in batch.iter().filter(|id| !known.contains(id)) {
                let result = self.delete_orphan(project, *orphan, before).await;
                failures.record_message(project, *orphan, result);
                self.check_stores(failures).await?;
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
                    failures.reset();
                } else {
                    kept += 1;
                }
                self.check_stores(&mut failures).await?;
            }
            if !is_full_batch(projects.len()) {
                return failures.result();
            }
        }
    }

    /// Deletes the mail and the suppressions of a purged project, and then its mailbox. Returns false and keeps the
    /// mailbox if a message cannot be deleted.
    async fn delete_mailbox(&self, project: ProjectId, failures: &mut Failures) -> Result<bool> {
        let before = self.store.clock_rng().now().plus_seconds(1);
        let stuck = self.delete_before(project, before, failures).await?;
        let mut is_complete = stuck.is_empty();
        // A raw message can exist without a row, if a process was killed between storing the message and committing the
        // row.
        let mut objects = self.raws.list(project, MailId::earliest_at(Time::UNIX_EPOCH), None);
        while let Some(mail) = objects.try_next().await? {
            if stuck.contains(&mail) {
                continue;
            }
            let result = self.raws.delete(project, mail).await;
            is_complete &= failures.record_message(project, mail, result);
            self.check_stores(failures).await?;
        }
        let mut connection = self.store.connection().await?;
        connection.suppression_purge(project).await?;
        if is_complete {
            connection.mailbox_delete(project).await?;
        }
        Ok(is_complete)
    }

    /// Deletes the mail of a project that is older than this time. Deletes a raw message before its row, so that a
    /// killed process leaves no message without a row. Returns the messages that cannot be deleted.
    async fn delete_before(
        &self,
        project: ProjectId,
        before: Time,
        failures: &mut Failures,
    ) -> Result<HashSet<MailId>> {
        let (mut stuck, mut after) = (HashSet::new(), MailId::earliest_at(Time::UNIX_EPOCH));
        loop {
            let old = self.store.connection().await?.message_list_old(project, before, after, BATCH_SIZE).await?;
            let (mut deleted, mut checked) = (Vec::with_capacity(old.len()), Ok(()));
            for mail in &old {
                let result = self.raws.delete(project, *mail).await;
                if failures.record_message(project, *mail, result) {
                    deleted.push(*mail);
                } else {
                    stuck.insert(*mail);
                }
                checked = self.check_stores(failures).await;
                if checked.is_err() {
                    break;
                }
            }
            self.delete_rows(project, &deleted).await?;
            checked?;
            match old.last() {
                Some(last) if is_full_batch(old.len()) => after = *last,
                _ => return Ok(stuck),
            }
        }
    }

    /// After [`MAX_FAILURES`] consecutive failures, checks that the mail store and Postgres are available, with requests
    /// for a mail that does not exist, in the project of the last failure: a file system that is mounted read-only refuses
    /// a deletion only in a folder that exists. If they are, the failures concern single messages or projects, and the
    /// run continues. Otherwise the returned error ends the run.
    async fn check_stores(&self, failures: &mut Failures) -> Result<()> {
        if failures.consecutive >= MAX_FAILURES
            && let Some((project, _)) = failures.last
        {
            let mail = self.store.clock_rng().id();
            self.raws.delete(project, mail).await?;
            self.raws.list(project, mail, None).try_next().await?;
            self.store.connection().await?.message_find(mail).await?;
            failures.reset();
        }
        Ok(())
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
            self.reset();
            return true;
        };
        tracing::warn!(%project, %mail, error = %error_chain(&error), "failed to delete a raw message");
        self.count(project, error);
        false
    }

    /// Logs and counts another failure of a project. Returns its result.
    fn record<T>(&mut self, project: ProjectId, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(%project, error = %error_chain(&error), "failed to delete mail of a project");
                self.count(project, error);
                None
            }
        }
    }

    fn count(&mut self, project: ProjectId, error: MailError) {
        self.consecutive += 1;
        self.last = Some((project, error));
    }

    const fn reset(&mut self) {
        self.consecutive = 0;
    }

    /// Returns the last failure.
    fn result(self) -> Result<()> {
        self.last.map_or(Ok(()), |(_, error)| Err(error))
    }
}
