//! The status and the log of a project.

use kernel::{MailId, Page, Paging, ProjectId};

use super::{Mail, Result, Target};
use crate::error::MailError;
use crate::model::{EmailStatus, MailDirection, MailLogEntry};
use crate::outgoing::default_sender;
use crate::raw::RawStream;
use crate::repository::{
    MailboxRepository as _, MessageCounts, MessageRecord, MessageRepository as _, ProjectRepository as _,
};

impl Mail {
    /// Returns the mail address of a project, with its limits and usage.
    ///
    /// # Errors
    /// Returns [`MailError::ProjectNotFound`] for a deleted project.
    pub async fn status(&self, target: Target) -> Result<EmailStatus> {
        let mut connection = self.store.connection().await?;
        let project = connection.project_find(target.project).await?.ok_or(MailError::ProjectNotFound)?;
        let now = self.store.clock_rng().now();
        let counts = connection.message_count(target.project, now).await?;
        let stored = connection.mailbox_bytes(target.project).await?;
        let MessageCounts { sent_last_hour, sent_last_day, received_last_day } = counts;
        let granted = project.email_domain.is_some();
        let future = || Some(format!("{}.{}.{}", project.name, project.org_slug, self.domain.as_ref()?));
        let address = project.email_domain.clone().or_else(future);
        let limits = self.limits.for_plan(target.plan);
        Ok(EmailStatus {
            granted,
            from: address.as_deref().map(default_sender).unwrap_or_default(),
            address: address.unwrap_or_default(),
            hourly_limit: limits.mails_per_hour,
            sent_last_hour,
            sent_last24h: sent_last_day,
            received_last24h: received_last_day,
            keep_days: limits.mail_log_days,
            received_bytes: stored.received,
            sent_bytes: stored.sent,
            max_bytes: self.max_stored_bytes(project.plan, project.pro_retention_until),
        })
    }

    /// Returns the mails of a project, newest first. The log stays readable after the grant is revoked.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn log(
        &self,
        project: ProjectId,
        direction: Option<MailDirection>,
        paging: &Paging<MailId>,
    ) -> Result<Page<MailLogEntry>> {
        let records = self.store.connection().await?.message_list(project, direction, paging).await?;
        Ok(Page::cut(records.into_iter().map(MailLogEntry::from).collect(), paging, |entry| entry.id))
    }

    /// Returns a mail of a project.
    ///
    /// # Errors
    /// Returns [`MailError::MailNotFound`].
    pub async fn entry(&self, project: ProjectId, mail: MailId) -> Result<MailLogEntry> {
        Ok(self.record(project, mail).await?.into())
    }

    /// Returns the size and the bytes of a raw message. A received message includes the headers that the mail node
    /// added; a sent message has exactly the bytes that the relay gets.
    ///
    /// # Errors
    /// Returns [`MailError::MailNotFound`], [`MailError::NoRawMessage`] or [`MailError::MailStore`].
    pub async fn raw(&self, project: ProjectId, mail: MailId) -> Result<(u64, RawStream)> {
        if !self.record(project, mail).await?.has_raw {
            return Err(MailError::NoRawMessage);
        }
        self.raws.open(project, mail).await
    }

    async fn record(&self, project: ProjectId, mail: MailId) -> Result<MessageRecord> {
        let found = self.store.connection().await?.message_find(mail).await?;
        found.filter(|record| record.project == project).ok_or(MailError::MailNotFound)
    }
}
