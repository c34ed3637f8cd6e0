//! Mail that the mail node received.

use std::collections::BTreeSet;
use std::error::Error as StdError;

use bytes::Bytes;
use futures_util::Stream;
use kernel::{InvalidField, MailId};
use store::Connection;

use super::{Mail, Result, one_line};
use crate::error::MailError;
use crate::metrics;
use crate::model::{MailDirection, MailOutcome, NewInboundMail, RecipientOwner};
use crate::repository::{
    DeliveryRepository as _, MailboxRepository as _, MessageRecord, MessageRepository as _, NewDelivery,
    ProjectRepository as _,
};

/// The largest received message, with the headers that the mail node adds, in bytes.
const MAX_MESSAGE_BYTES: u64 = 26 * 1024 * 1024;

const MAX_SUBJECT_CHARS: usize = 1000;
const MAX_ADDRESS_CHARS: usize = 320;

/// The time for which a mail is delivered to a worker, in seconds.
const DELIVERY_PERIOD_SECONDS: i64 = 24 * 3600;

/// The results of SPF (RFC 7208 section 2.6).
const SPF_RESULTS: &[&str] = &["none", "neutral", "pass", "fail", "softfail", "temperror", "permerror"];

impl Mail {
    /// Returns the owner of a domain, for a recipient at it.
    ///
    /// # Errors
    /// Returns [`MailError::Store`].
    pub async fn recipient_owner(&self, domain: &str) -> Result<RecipientOwner> {
        let domain = domain.to_ascii_lowercase();
        if domain.contains('\0') {
            return Ok(RecipientOwner::Foreign);
        }
        if let Some(project) = self.store.connection().await?.project_by_domain(&domain).await? {
            return Ok(RecipientOwner::Project(project));
        }
        let is_platform = |parent: &String| domain == *parent || domain.ends_with(&format!(".{parent}"));
        Ok(if self.domain.as_ref().is_some_and(is_platform) {
            RecipientOwner::Unknown
        } else {
            RecipientOwner::Foreign
        })
    }

    /// Stores the bytes of a received message. Safe to repeat.
    ///
    /// # Errors
    /// Returns [`MailError::MessageTooLarge`], [`MailError::UploadBroken`] or [`MailError::MailStore`].
    pub async fn upload<E: Into<Box<dyn StdError + Send + Sync>>>(
        &self,
        mail: MailId,
        body: impl Stream<Item = std::result::Result<Bytes, E>> + Unpin,
    ) -> Result<()> {
        self.raws.upload(mail, MAX_MESSAGE_BYTES, body).await
    }

    /// Adds an uploaded message to the log of its project, and makes it due at the project's home node. Safe to repeat.
    ///
    /// # Errors
    /// Returns [`MailError::ProjectNotFound`] if the project was deleted, or if a recipient's domain belongs to another
    /// project now. Returns [`MailError::Field`] if the bytes were not
    /// uploaded or a field is invalid, or [`MailError::MailStore`].
    pub async fn receive(&self, mail: NewInboundMail) -> Result<()> {
        let mut connection = self.store.connection().await?;
        if let Some(known) = connection.message_find(mail.id).await? {
            self.raws.discard(mail.id).await?;
            let is_same = known.project == mail.project;
            return if is_same { Ok(()) } else { Err(InvalidField::new("project", "is not that of this id").into()) };
        }
        let found = connection.project_find(mail.project).await?;
        let own_domain = found.as_ref().and_then(|project| project.email_domain.as_deref());
        let is_foreign = has_other_owner(&mut connection, &mail, own_domain).await?;
        drop(connection);
        if found.is_none() || is_foreign {
            self.raws.discard(mail.id).await?;
            return Err(MailError::ProjectNotFound);
        }
        if !SPF_RESULTS.contains(&&*mail.spf) {
            return Err(InvalidField::new("spf", format!("must be one of: {}", SPF_RESULTS.join(" "))).into());
        }
        let size = self.raws.assign(mail.project, mail.id).await?;
        let size = size.ok_or_else(|| InvalidField::new("id", "has no message; upload the message first"))?;
        if size != mail.size_bytes {
            let message = format!("must be the length of the message, which is {size}");
            return Err(InvalidField::new("sizeBytes", message).into());
        }
        self.store.transaction_unaudited(async |tx: &mut Connection| self.insert(tx, &mail).await).await?;
        metrics::received();
        Ok(())
    }

    async fn insert(&self, tx: &mut Connection, mail: &NewInboundMail) -> Result<()> {
        let now = self.store.clock_rng().now();
        let project = tx.project_find(mail.project).await?.ok_or(MailError::ProjectNotFound)?;
        tx.mailbox_create(mail.project).await?;
        let record = MessageRecord {
            id: mail.id,
            project: mail.project,
            direction: MailDirection::In,
            sender: one_line(&mail.from, MAX_ADDRESS_CHARS),
            recipients: mail.to.iter().map(|to| one_line(to, MAX_ADDRESS_CHARS)).collect(),
            subject: mail.subject.as_deref().map(|subject| one_line(subject, MAX_SUBJECT_CHARS)),
            outcome: MailOutcome::Received,
            detail: None,
            size_bytes: i64::try_from(mail.size_bytes).unwrap_or(i64::MAX),
            spf: Some(mail.spf.clone()),
            has_raw: true,
            created_at: mail.received_at.min(now),
        };
        if !tx.message_insert(&record).await? {
            return Ok(());
        }
        // The period begins now and not at the reception, because the mail node may have kept the mail during an outage
        // of the control plane.
        let expires_at = now.plus_seconds(DELIVERY_PERIOD_SECONDS);
        let delivery = NewDelivery { mail_id: mail.id, project_id: mail.project, next_attempt_at: now, expires_at };
        tx.delivery_insert(delivery).await?;
        if let Some(node) = project.home_node {
            self.ports.nodes.wake(tx, node).await?;
        }
        Ok(())
    }
}

/// Returns whether another project has the domain of a recipient. It can have received it after the mail node accepted
/// the mail.
async fn has_other_owner(
    connection: &mut Connection,
    mail: &NewInboundMail,
    own_domain: Option<&str>,
) -> store::Result<bool> {
    let domains = mail.to.iter().filter_map(|to| Some(to.rsplit_once('@')?.1.to_ascii_lowercase()));
    let others = domains.filter(|domain| Some(domain.as_str()) != own_domain);
    for domain in others.collect::<BTreeSet<_>>() {
        if connection.project_by_domain(&domain).await?.is_some_and(|owner| owner != mail.project) {
            return Ok(true);
        }
    }
    Ok(false)
}
