//! Submissions: a worker sends a mail.

use kernel::{MailId, NodeId, ProjectId, error_chain};
use store::{Connection, Error};

use super::relay::{RELAY_TOPIC, RelayMessage};
use super::{Mail, Result};
use crate::address::suppression_key;
use crate::dkim::DkimSigner;
use crate::metrics;
use crate::mime::assemble;
use crate::model::{MailDirection, MailOutcome, OutgoingMail, Refusal, Submission, SuppressionReason};
use crate::outgoing::{MAX_MESSAGE_BYTES, validate};
use crate::ports::Notice;
use crate::repository::{
    MailProject, MailboxRepository as _, MessageRecord, MessageRepository as _, ProjectRepository as _,
    SuppressionRecord, SuppressionRepository as _,
};

/// An assembled mail.
struct Assembled {
    id: MailId,
    project: ProjectId,
    sender: String,
    recipients: Vec<String>,
    subject: String,
    message: Vec<u8>,
}

/// What to do with a submission, as of one read.
enum Decision {
    Accept,
    /// An earlier submission with this id was accepted.
    Repeated,
    Refuse(Refusal),
    /// A recipient is suppressed. The refused mail gets a row in the log, unless there were many of them in the last
    /// hour.
    RefuseSuppressed {
        detail: String,
        is_logged: bool,
    },
}

impl Mail {
    /// Accepts a mail of a worker from the project's home node: stores and queues it. If a submission with the same id
    /// was accepted before, this is a no-op.
    ///
    /// # Errors
    /// Returns [`crate::MailError::MailStore`] or [`crate::MailError::Store`]. The same submission may succeed later.
    pub async fn submit(&self, node: NodeId, submission: Submission) -> Result<std::result::Result<(), Refusal>> {
        let result = self.try_submit(node, submission).await?;
        metrics::submission(match &result {
            Ok(()) => "queued",
            Err(refusal) => refusal.code(),
        });
        Ok(result)
    }

    async fn try_submit(
        &self,
        node: NodeId,
        Submission { id, project, mail }: Submission,
    ) -> Result<std::result::Result<(), Refusal>> {
        let found = self.store.connection().await?.project_find(project).await?;
        let Some((found, domain)) = sender_domain(found, node) else { return Ok(Err(Refusal::NotGranted)) };
        let assembled = match self.assemble(id, project, domain, mail).await? {
            Ok(assembled) => assembled,
            Err(refusal) => return Ok(Err(refusal)),
        };
        // Decide before the message is stored, and again in the transaction.
        let decision = self.decide(&mut *self.store.connection().await?, node, &assembled, false).await?;
        let decision = match decision {
            Decision::Accept => {
                self.raws.put(project, id, assembled.message.clone()).await?;
                let decision = self.commit(node, &assembled).await?;
                if !matches!(decision, Decision::Accept | Decision::Repeated) {
                    self.discard(project, id).await;
                }
                decision
            }
            decision @ Decision::RefuseSuppressed { is_logged: true, .. } => {
                self.store
                    .transaction_unaudited(async |tx: &mut Connection| self.write(tx, &assembled, &decision).await)
                    .await?;
                decision
            }
            decision => decision,
        };
        match decision {
            Decision::Accept | Decision::Repeated => Ok(Ok(())),
            Decision::RefuseSuppressed { detail, .. } => Ok(Err(Refusal::Suppressed(detail))),
            Decision::Refuse(refusal) => {
                if let Refusal::RateLimited { limit } = refusal {
                    self.notify(&found, limit).await?;
                }
                Ok(Err(refusal))
            }
        }
    }

    /// Assembles the message on another thread, because a large mail would delay other requests.
    async fn assemble(
        &self,
        id: MailId,
        project: ProjectId,
        domain: String,
        mail: OutgoingMail,
    ) -> Result<std::result::Result<Assembled, Refusal>> {
        let dkim = self.dkim.clone();
        let assembling = move || assemble_mail(id, project, &domain, dkim.as_ref(), mail);
        let assembled = tokio::task::spawn_blocking(assembling).await.map_err(Error::inconsistent)?;
        Ok(assembled.map_err(Error::inconsistent)?)
    }

    /// Decides again, and stores the row of the log and the outbox message if the mail is accepted.
    async fn commit(&self, node: NodeId, mail: &Assembled) -> Result<Decision> {
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let decision = self.decide(tx, node, mail, true).await?;
                if self.write(tx, mail, &decision).await? {
                    return Ok(decision);
                }
                // A concurrent submission with the same id can have been accepted.
                let known = tx.message_find(mail.id).await?;
                Ok(known.map_or(decision, |known| repeated(known, mail.project)))
            })
            .await
    }

    /// Stores the row of the log, and the outbox message of an accepted mail. Returns false if it stored nothing.
    async fn write(&self, tx: &mut Connection, mail: &Assembled, decision: &Decision) -> Result<bool> {
        let (outcome, detail) = match decision {
            Decision::Accept => (MailOutcome::Queued, None),
            Decision::RefuseSuppressed { detail, is_logged: true } => (MailOutcome::Rejected, Some(detail.clone())),
            _ => return Ok(false),
        };
        let record = MessageRecord {
            id: mail.id,
            project: mail.project,
            direction: MailDirection::Out,
            sender: mail.sender.clone(),
            recipients: mail.recipients.clone(),
            subject: Some(mail.subject.clone()),
            outcome,
            detail,
            size_bytes: i64::try_from(mail.message.len()).unwrap_or(i64::MAX),
            spf: None,
            has_raw: outcome == MailOutcome::Queued,
            created_at: self.store.clock_rng().now(),
        };
        if outcome == MailOutcome::Rejected {
            tx.mailbox_create(mail.project).await?;
        }
        let is_new = tx.message_insert(&record).await?;
        if is_new && outcome == MailOutcome::Queued {
            self.store.enqueue(tx, RELAY_TOPIC, &mail.id.to_string(), &RelayMessage { mail: mail.id }).await?;
        }
        Ok(is_new)
    }

    /// Decides about a mail. The id is looked up last: otherwise, a concurrent submission with the same id could be
    /// accepted after the look-up, and count against this one.
    async fn decide(
        &self,
        connection: &mut Connection,
        node: NodeId,
        mail: &Assembled,
        is_exact: bool,
    ) -> Result<Decision> {
        let decision = self.decide_as_new(connection, node, mail, is_exact).await?;
        let known = connection.message_find(mail.id).await?;
        Ok(known.map_or(decision, |known| repeated(known, mail.project)))
    }

    /// Decides about a mail with an unknown id. With `is_exact`, first locks the mailbox, which makes the hourly limit
    /// exact. The lock comes as late as possible, because all submissions of the project wait for it.
    async fn decide_as_new(
        &self,
        connection: &mut Connection,
        node: NodeId,
        mail: &Assembled,
        is_exact: bool,
    ) -> Result<Decision> {
        let project = connection.project_find(mail.project).await?;
        let Some((project, _)) = sender_domain(project, node) else {
            return Ok(Decision::Refuse(Refusal::NotGranted));
        };
        let limit = self.limits.for_plan(project.plan).mails_per_hour;
        let addresses: Vec<String> = mail.recipients.iter().map(|address| suppression_key(address)).collect();
        let suppressed = connection.suppression_find(mail.project, &addresses).await?;
        if is_exact && suppressed.is_none() {
            connection.mailbox_lock(mail.project).await?;
        }
        let an_hour_ago = self.store.clock_rng().now().plus_seconds(-3600);
        let counts = connection.message_count_submitted(mail.project, an_hour_ago).await?;
        if let Some(suppressed) = suppressed {
            // Do not log every refusal: a worker that ignores refusals must not fill the log.
            let is_logged = counts.suppressed < i64::from(limit);
            return Ok(Decision::RefuseSuppressed { detail: describe(&suppressed), is_logged });
        }
        if counts.sent >= i64::from(limit) {
            return Ok(Decision::Refuse(Refusal::RateLimited { limit }));
        }
        Ok(Decision::Accept)
    }

    /// Notifies the organization, in its own transaction: the organization's row must not be locked after the mailbox.
    async fn notify(&self, project: &MailProject, per_hour: u32) -> Result<()> {
        let notice = Notice::EmailLimit { project: project.name.clone(), per_hour };
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                Ok(self.ports.organizations.raise(tx, project.org, notice).await?)
            })
            .await
    }

    /// Deletes the stored message of a mail that was not accepted.
    async fn discard(&self, project: ProjectId, mail: MailId) {
        if let Err(error) = self.raws.delete(project, mail).await {
            tracing::warn!(%project, %mail, error = %error_chain(&error), "failed to delete the message of a refused mail");
        }
    }
}

/// Returns the project and its mail domain, if the project may send mail from this node.
fn sender_domain(project: Option<MailProject>, node: NodeId) -> Option<(MailProject, String)> {
    let project = project.filter(|project| project.home_node == Some(node))?;
    let domain = project.email_domain.clone()?;
    Some((project, domain))
}

/// Decides about a mail whose id is in the log.
fn repeated(known: MessageRecord, project: ProjectId) -> Decision {
    match known {
        known if known.project != project => {
            Decision::Refuse(Refusal::InvalidMessage("the id of the mail is in use".to_owned()))
        }
        MessageRecord { outcome: MailOutcome::Rejected, detail, .. } => {
            Decision::RefuseSuppressed { detail: detail.unwrap_or_default(), is_logged: false }
        }
        _ => Decision::Repeated,
    }
}

fn assemble_mail(
    id: MailId,
    project: ProjectId,
    domain: &str,
    dkim: Option<&DkimSigner>,
    mail: OutgoingMail,
) -> std::result::Result<std::result::Result<Assembled, Refusal>, mail_auth::Error> {
    let valid = match validate(mail, domain) {
        Ok(valid) => valid,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let (sender, recipients) = (valid.from.address.to_string(), valid.recipients.clone());
    let subject = valid.subject.clone();
    let Some(message) = assemble(id, domain, valid) else {
        return Ok(Err(Refusal::InvalidMessage("the mail cannot be assembled".to_owned())));
    };
    let message = match dkim {
        Some(dkim) => dkim.sign(&message)?,
        None => message,
    };
    if message.len() > MAX_MESSAGE_BYTES {
        return Ok(Err(Refusal::TooLarge { size: message.len(), limit: MAX_MESSAGE_BYTES }));
    }
    Ok(Ok(Assembled { id, project, sender, recipients, subject, message }))
}

fn describe(suppressed: &SuppressionRecord) -> String {
    let SuppressionRecord { address, reason, .. } = suppressed;
    let reason = match reason {
        SuppressionReason::Bounce => "a mail to it bounced permanently",
        SuppressionReason::Complaint => "its owner reported a mail as spam",
    };
    format!("the recipient {address} is suppressed: {reason}; delete the suppression to send to it again")
}

impl Refusal {
    /// Returns the code as a metric label.
    const fn code(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Suppressed(_) => "suppressed",
            Self::InvalidRecipient(_) => "invalid_recipient",
            Self::InvalidSender { .. } => "invalid_sender",
            Self::InvalidMessage(_) => "invalid_message",
            Self::TooLarge { .. } => "too_large",
            Self::NotGranted => "not_granted",
        }
    }
}
