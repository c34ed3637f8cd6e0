//! Mail that the mail node received.

use std::error::Error as StdError;

use bytes::Bytes;
use futures_util::Stream;
use kernel::{InvalidField, MailId, ProjectId, Time};
use store::Connection;

use super::{Mail, Result, one_line, stored_bytes};
use crate::error::MailError;
use crate::model::{MailDirection, MailOutcome, NewInboundMail, RecipientOwner};
use crate::raw::drain;
use crate::repository::{
    DeliveryRepository as _, MailBytes, MailboxRepository as _, MessageRecord, MessageRepository as _, NewDelivery,
    ProjectRepository as _,
};

/// The maximum size of a received message in bytes, including the headers that the mail node adds.
const MAX_MESSAGE_BYTES: u64 = 26 * 1024 * 1024;

const MAX_SUBJECT_CHARS: usize = 1000;
const MAX_ADDRESS_CHARS: usize = 320;

/// The longest time for which a received mail waits for its first claim, in seconds: the default retention of mail on
/// free.
const FIRST_CLAIM_PERIOD_SECONDS: i64 = 30 * 24 * 3600;

/// The results of SPF (RFC 7208 section 2.6).
const SPF_RESULTS: &[&str] = &["none", "neutral", "pass", "fail", "softfail", "temperror", "permerror"];

impl Mail {
    /// Returns the owner of the domain of a recipient.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn recipient_owner(&self, domain: &str) -> Result<RecipientOwner> {
        let domain = domain.to_ascii_lowercase();
        if domain.contains('\0') {
            return Ok(RecipientOwner::Foreign);
        }
        if let Some(owner) = self.store.connection().await?.project_by_domain(&domain).await? {
            let stored = owner.received_bytes.unwrap_or_default().unsigned_abs();
            let is_full = stored >= self.max_stored_bytes(owner.plan, owner.pro_retention_until);
            return Ok(if is_full { RecipientOwner::Full } else { RecipientOwner::Project(owner.project) });
        }
        let is_platform = |parent: &String| domain == *parent || domain.ends_with(&format!(".{parent}"));
        Ok(if self.domain.as_ref().is_some_and(is_platform) {
            RecipientOwner::Unknown
        } else {
            RecipientOwner::Foreign
        })
    }

    /// Stores the bytes of a received message of a project. Safe to repeat. If the project is deleted, reads the bytes,
    /// but does not store them: [`Self::receive`] then returns [`MailError::ProjectNotFound`].
    ///
    /// # Errors
    /// Returns [`MailError::MessageTooLarge`], [`MailError::UploadBroken`], [`MailError::MailStore`] or
    /// [`MailError::Store`].
    pub async fn upload<E: Into<Box<dyn StdError + Send + Sync>>>(
        &self,
        project: ProjectId,
        mail: MailId,
        mut body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<()> {
        let mut connection = self.store.connection().await?;
        let Some(has_mailbox) = connection.project_has_mailbox(project).await? else {
            drop(connection);
            drain(&mut body, MAX_MESSAGE_BYTES).await;
            return Ok(());
        };
        // The background jobs find the messages of a project by its mailbox, even if they are never committed. To
        // insert an existing mailbox would wait for the transaction that changes it.
        if !has_mailbox {
            connection.mailbox_create(project).await?;
        }
        drop(connection);
        self.raws.upload(project, mail, MAX_MESSAGE_BYTES, body).await
    }

    /// Adds an uploaded message to the log of its project, and makes it due for the project's home node. Safe to
    /// repeat. The project had the address when the mail node acknowledged the mail; it may have lost it since then.
    ///
    /// # Errors
    /// Returns [`MailError::ProjectNotFound`] if the project is deleted: a background job deletes the uploaded message.
    /// Returns [`MailError::UploadMismatch`] if the bytes were not uploaded or have another size, which another upload
    /// corrects. Returns [`MailError::Field`] if a field is invalid, and [`MailError::MailStore`] if the object store
    /// failed.
    pub async fn receive(&self, mail: NewInboundMail) -> Result<()> {
        let mut connection = self.store.connection().await?;
        if let Some(known) = connection.message_find(mail.id).await? {
            let is_same = known.project == mail.project;
            return if is_same { Ok(()) } else { Err(InvalidField::new("project", "is not that of this id").into()) };
        }
        connection.project_find(mail.project).await?.ok_or(MailError::ProjectNotFound)?;
        drop(connection);
        if !SPF_RESULTS.contains(&&*mail.spf) {
            return Err(InvalidField::new("spf", format!("must be one of: {}", SPF_RESULTS.join(" "))).into());
        }
        let raw = self.raws.stat(mail.project, mail.id).await?;
        if raw.is_none_or(|raw| raw.size != mail.size_bytes) {
            return Err(MailError::UploadMismatch);
        }
        self.insert_in_batch(mail).await
    }

    /// Adds mails of a project to the log, and skips mails that the log contains. Returns the number of added mails.
    pub(super) async fn insert_received(
        &self,
        tx: &mut Connection,
        project: ProjectId,
        mails: Vec<NewInboundMail>,
    ) -> Result<u64> {
        let now = self.store.corrected_now(tx).await?;
        let found = tx.project_find(project).await?.ok_or(MailError::ProjectNotFound)?;
        let mut records: Vec<_> = mails.into_iter().map(|mail| log_record(mail, now)).collect();
        // Two servers can insert the same mails concurrently. In the same order, they cannot deadlock.
        records.sort_by_key(|record| record.id);
        let inserted = tx.message_insert_all(&records).await?;
        if inserted.is_empty() {
            return Ok(0);
        }
        records.retain(|record| inserted.contains(&record.id));
        let expires_at = now.plus_seconds(FIRST_CLAIM_PERIOD_SECONDS);
        let delivery = |mail_id| NewDelivery { mail_id, project_id: project, next_attempt_at: now, expires_at };
        tx.delivery_insert_all(&inserted.iter().copied().map(delivery).collect::<Vec<_>>()).await?;
        if let Some(node) = found.home_node {
            self.ports.nodes.wake(tx, node).await?;
        }
        // The mail node has acknowledged the mails, so they are stored even if the mailbox has become full. This locks
        // the mailbox, so it comes last.
        let received = records.iter().map(|record| record.stored_bytes).sum();
        tx.mailbox_add(project, MailBytes { received, sent: 0 }).await?;
        Ok(inserted.len() as u64)
    }
}

fn log_record(mail: NewInboundMail, now: Time) -> MessageRecord {
    let recipients: Vec<String> = mail.to.iter().map(|to| one_line(to, MAX_ADDRESS_CHARS)).collect();
    let subject = mail.subject.as_deref().map(|subject| one_line(subject, MAX_SUBJECT_CHARS));
    let stored_bytes = stored_bytes(mail.size_bytes, &recipients, subject.as_deref());
    MessageRecord {
        id: mail.id,
        project: mail.project,
        direction: MailDirection::In,
        sender: one_line(&mail.from, MAX_ADDRESS_CHARS),
        recipients,
        subject,
        outcome: MailOutcome::Received,
        detail: None,
        size_bytes: i64::try_from(mail.size_bytes).unwrap_or(i64::MAX),
        stored_bytes,
        spf: Some(mail.spf),
        has_raw: true,
        created_at: mail.received_at.min(now),
    }
}
