//! Submissions: a worker sends a mail.

use std::time::Duration;

use kernel::{MailId, NamedProject, NodeId, OrgId, ProjectId};
use store::{Connection, Error};

use super::relay::{RELAY_TOPIC, RelayMessage};
use super::{MIN_STORED_BYTES, Mail, Result, stored_bytes};
use crate::address::suppression_key;
use crate::dkim::DkimSigner;
use crate::metrics;
use crate::mime::assemble;
use crate::model::{MailDirection, MailOutcome, OutgoingMail, Refusal, Submission, SuppressionReason};
use crate::outgoing::{MAX_MESSAGE_BYTES, validate};
use crate::ports::Notice;
use crate::repository::{
    MailBytes, MailProject, MailboxRepository as _, MessageRecord, MessageRepository as _, ProjectRepository as _,
    SubmittedCounts, SuppressionRecord, SuppressionRepository as _,
};

/// The concurrent transactions of a project on a server. Each locks the mailbox of the project: one proceeds, and the
/// other waits for it. More would hold connections that other projects need.
pub(super) const MAX_TRANSACTIONS: usize = 2;

/// The longest wait for one of these transactions.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);

/// An assembled mail.
struct Assembled {
    id: MailId,
    org: OrgId,
    project: ProjectId,
    sender: String,
    recipients: Vec<String>,
    subject: String,
    message: Vec<u8>,
}

/// The decision about a submission, based on one read of the database.
enum Decision {
    Accept,
    /// An earlier submission with this id was accepted.
    Repeated,
    Refuse(Refusal),
    /// A recipient is suppressed. The refused mail gets a row in the log, unless the last hour already has many such
    /// rows, or the row does not fit into the limit on the stored bytes.
    RefuseSuppressed {
        detail: String,
        is_logged: bool,
    },
}

impl Assembled {
    fn stored_bytes(&self) -> i64 {
        stored_bytes(self.message.len() as u64, &self.recipients, Some(&self.subject))
    }

    /// Returns the bytes that the row of the log counts if the message is not stored.
    fn row_bytes(&self) -> i64 {
        stored_bytes(0, &self.recipients, Some(&self.subject))
    }
}

impl Mail {
    /// Accepts a mail that a worker on the project's home node sends: stores and queues it. If a submission with the
    /// same id was accepted before, this is a no-op.
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
        let mut connection = self.store.connection().await?;
        let found = connection.project_find(project).await?;
        let Some((found, domain)) = sender_domain(found, node) else { return Ok(Err(Refusal::NotGranted)) };
        let early = self.decide_early(&mut connection, id, &found).await?;
        drop(connection);
        let decision = match early {
            Some(decision) => decision,
            None => match self.assemble(id, found.clone(), domain, mail).await? {
                Ok(assembled) => self.accept(node, &assembled).await?,
                Err(refusal) => Decision::Refuse(refusal),
            },
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

    /// Decides without the message, if the limits or the id suffice. So a call that exceeds a limit does not cost the
    /// assembly of a mail.
    async fn decide_early(
        &self,
        connection: &mut Connection,
        id: MailId,
        project: &MailProject,
    ) -> Result<Option<Decision>> {
        let stored = connection.mailbox_bytes(project.id).await?;
        let counts = self.count_submitted(connection, project.id).await?;
        let refusal = self.exceeded_limit(project, counts, stored, MIN_STORED_BYTES);
        let known = connection.message_find(id).await?;
        Ok(known.map(|known| repeated(known, project.id)).or(refusal.map(Decision::Refuse)))
    }

    /// Stores and queues an assembled mail, unless it is refused.
    async fn accept(&self, node: NodeId, mail: &Assembled) -> Result<Decision> {
        // Decide before the message is stored, and again in the transaction.
        let first = self.decide(&mut *self.store.connection().await?, node, mail, false).await?;
        match first {
            // If the mail is then refused, the message is not deleted here: a repeated submission with the same id can
            // have been accepted in the meantime. A background job deletes messages without a row.
            Decision::Accept => self.raws.put(mail.project, mail.id, mail.message.clone()).await?,
            Decision::RefuseSuppressed { is_logged: true, .. } => {}
            decision => return Ok(decision),
        }
        self.commit(node, mail, first).await
    }

    /// Assembles the message on another thread, because a large mail would delay other requests.
    async fn assemble(
        &self,
        id: MailId,
        project: MailProject,
        domain: String,
        mail: OutgoingMail,
    ) -> Result<std::result::Result<Assembled, Refusal>> {
        let dkim = self.dkim.clone();
        let assembling = move || assemble_mail(id, &project, &domain, dkim.as_ref(), mail);
        let assembled = tokio::task::spawn_blocking(assembling).await.map_err(Error::inconsistent)?;
        Ok(assembled.map_err(Error::inconsistent)?)
    }

    /// Decides again, and stores the row of the log and the outbox message. Does not accept a mail that was refused by the
    /// `first` decision, because its message is not stored.
    async fn commit(&self, node: NodeId, mail: &Assembled, first: Decision) -> Result<Decision> {
        let permit = self.submissions.of(mail.project).acquire_owned();
        let permit = tokio::time::timeout(PERMIT_TIMEOUT, permit).await;
        let _permit = permit.map_err(|elapsed| Error::Unavailable(elapsed.into()))?.map_err(Error::inconsistent)?;
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                let decision = match (self.decide(tx, node, mail, true).await?, first) {
                    // The suppression was deleted in the meantime.
                    (Decision::Accept, first @ Decision::RefuseSuppressed { .. }) => return Ok(first),
                    (exact, _) => exact,
                };
                if self.write(tx, mail, &decision).await? {
                    return Ok(decision);
                }
                // In the meantime, a concurrent submission with the same id can have been accepted.
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
        let is_queued = outcome == MailOutcome::Queued;
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
            stored_bytes: if is_queued { mail.stored_bytes() } else { mail.row_bytes() },
            spf: None,
            has_raw: is_queued,
            created_at: self.store.clock_rng().now(),
        };
        let is_new = tx.message_insert(&record).await?;
        if is_new {
            tx.mailbox_add(mail.project, MailBytes { received: 0, sent: record.stored_bytes }).await?;
        }
        if is_new && is_queued {
            let message = RelayMessage { mail: mail.id };
            self.store.enqueue_for(tx, RELAY_TOPIC, mail.org, &mail.id.to_string(), &message).await?;
        }
        Ok(is_new)
    }

    /// Decides about a mail. Looks up the id last. Otherwise, a concurrent submission with the same id could be
    /// accepted after the lookup, and count against the limit of this one.
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

    /// Decides about a mail with an unknown id. If `is_exact` is true, locks the mailbox first, which makes the hourly
    /// limit exact. The lock comes as late as possible, because other submissions of the project wait for it.
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
        let addresses: Vec<String> = mail.recipients.iter().map(|address| suppression_key(address)).collect();
        let suppressed = connection.suppression_find(mail.project, &addresses).await?;
        let stored = if is_exact {
            connection.mailbox_lock(mail.project).await?
        } else {
            connection.mailbox_bytes(mail.project).await?
        };
        let counts = self.count_submitted(connection, mail.project).await?;
        if let Some(suppressed) = suppressed {
            // Do not log every refusal: a worker that ignores refusals must not fill the log.
            let is_rare = counts.suppressed < i64::from(self.limits.for_plan(project.plan).mails_per_hour);
            let bytes = stored.sent.unsigned_abs() + mail.row_bytes().unsigned_abs();
            let is_logged = is_rare && bytes <= self.max_stored_bytes(project.plan, project.pro_retention_until);
            return Ok(Decision::RefuseSuppressed { detail: describe(&suppressed), is_logged });
        }
        let refusal = self.exceeded_limit(&project, counts, stored, mail.stored_bytes().unsigned_abs());
        Ok(refusal.map_or(Decision::Accept, Decision::Refuse))
    }

    async fn count_submitted(&self, connection: &mut Connection, project: ProjectId) -> store::Result<SubmittedCounts> {
        let an_hour_ago = self.store.clock_rng().now().plus_seconds(-3600);
        connection.message_count_submitted(project, an_hour_ago).await
    }

    /// Returns the refusal of another mail that counts this number of bytes, by the limits of the plan.
    fn exceeded_limit(
        &self,
        project: &MailProject,
        counts: SubmittedCounts,
        stored: MailBytes,
        bytes: u64,
    ) -> Option<Refusal> {
        let mails_per_hour = self.limits.for_plan(project.plan).mails_per_hour;
        if counts.sent >= i64::from(mails_per_hour) {
            return Some(Refusal::RateLimited { limit: mails_per_hour });
        }
        let limit = self.max_stored_bytes(project.plan, project.pro_retention_until);
        let is_full = stored.sent.unsigned_abs() + bytes > limit;
        is_full.then_some(Refusal::MailboxFull { limit })
    }

    /// Notifies the organization, at most once an hour for each project.
    async fn notify(&self, project: &MailProject, per_hour: u32) -> Result<()> {
        let now = self.store.clock_rng().now();
        let named = NamedProject { id: project.id, name: project.name.clone() };
        let notice = Notice::EmailLimit { project: named, per_hour };
        self.store
            .transaction_unaudited(async |tx: &mut Connection| {
                if tx.mailbox_claim_notice(project.id, now, now.plus_seconds(-3600)).await? {
                    self.ports.organizations.raise(tx, project.org, notice).await?;
                }
                Ok(())
            })
            .await
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
    project: &MailProject,
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
        Some(dkim) => dkim.sign(domain, &message)?,
        None => message,
    };
    if message.len() > MAX_MESSAGE_BYTES {
        return Ok(Err(Refusal::TooLarge { size: message.len(), limit: MAX_MESSAGE_BYTES }));
    }
    Ok(Ok(Assembled { id, org: project.org, project: project.id, sender, recipients, subject, message }))
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
            Self::MailboxFull { .. } => "mailbox_full",
            Self::Suppressed(_) => "suppressed",
            Self::InvalidRecipient(_) => "invalid_recipient",
            Self::InvalidSender { .. } => "invalid_sender",
            Self::InvalidMessage(_) => "invalid_message",
            Self::TooLarge { .. } => "too_large",
            Self::NotGranted => "not_granted",
        }
    }
}
