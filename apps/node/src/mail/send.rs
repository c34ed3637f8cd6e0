//! The submission of mail to the control plane.

use std::time::Duration;

use bytes::Bytes;
use protocol::{MailRefusal, MailSubmission, MailSubmitted, OutgoingMail, RefusedMail};
use tokio::time::{sleep, timeout};

use super::error::SendError;
use super::metrics::MailMetrics;
use crate::client::{Core, Outcome, Unauthorized};
use crate::memory::{Memory, Reservation};
use crate::project_requests::{NotSent, ProjectRequests};
use daemon::{Backoff, new_mail_id};

/// The longest mail, as JSON with its attachments in base64. With its id and project, it fits into the 16 MiB that the
/// control plane accepts. It has room for an assembled mail of 10 MiB, to which base64 adds a third.
pub const MAX_SUBMISSION_BYTES: usize = (16 << 20) - 1024;

/// The limit on the memory of all mails in submission, in bytes.
const MAX_BYTES: usize = 256 << 20;
/// The limit of the projects of one owner: two mails of the maximum size.
const MAX_OWNER_BYTES: usize = 64 << 20;
/// The memory of a mail, as a multiple of its length: the mail is in memory as parsed values and as text.
const COPIES: usize = 2;

/// The time for all attempts to submit a mail.
const DEADLINE: Duration = Duration::from_secs(25);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Submits the mail of worker code.
pub struct Mailer {
    core: Core,
    memory: Memory,
    submissions: ProjectRequests<(), RefusedMail>,
    metrics: MailMetrics,
    deadline: Duration,
}

impl Mailer {
    /// Creates a mailer.
    #[must_use]
    pub fn new(core: Core, metrics: MailMetrics) -> Self {
        let (memory, submissions) = (Memory::new(MAX_BYTES, MAX_OWNER_BYTES), ProjectRequests::new());
        Self { core, memory, submissions, metrics, deadline: DEADLINE }
    }

    /// Waits for the memory of a mail with this many bytes.
    ///
    /// # Errors
    /// Returns [`SendError::Busy`] if other mails of the owner or of the node use the memory for too long.
    pub async fn reserve(&self, owner: &str, bytes: usize) -> Result<Reservation, SendError> {
        self.memory.reserve(owner, bytes * COPIES).await.map_err(|_| SendError::Busy)
    }

    /// Submits a mail, and returns its id after the control plane has queued it.
    ///
    /// # Errors
    /// Returns an error if the control plane refuses the mail, or does not confirm it in time.
    pub async fn send(&self, project: &str, mail: OutgoingMail) -> Result<String, SendError> {
        let submission = MailSubmission { id: new_mail_id(), project: project.to_owned(), mail };
        let body = serde_json::to_vec(&submission).map_err(|_| SendError::InvalidMessage("The mail is malformed."))?;
        let MailSubmission { id, .. } = submission;
        let submitted = timeout(self.deadline, self.submit(project, body.into())).await;
        submitted.unwrap_or(Err(SendError::Unavailable)).map(|()| id)
    }

    /// Submits a mail, and repeats the submission if its response is lost.
    async fn submit(&self, project: &str, submission: Bytes) -> Result<(), SendError> {
        let _permit = self.submissions.begin(project, ()).await.map_err(|not_sent| match not_sent {
            NotSent::Refused(refused) => SendError::Refused(refused),
            NotSent::Busy => SendError::Busy,
        })?;
        let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
        loop {
            match self.core.submit_mail(submission.clone()).await {
                Ok(Outcome::Accepted(MailSubmitted::Queued)) => return Ok(()),
                Ok(Outcome::Accepted(MailSubmitted::Refused(refused))) => {
                    if applies_to_project(refused.code) {
                        self.submissions.repeat(project, (), refused.clone(), None);
                    }
                    return Err(SendError::Refused(refused));
                }
                Ok(Outcome::Rejected) => {
                    tracing::error!("the control plane rejected the submission of a mail");
                    return Err(SendError::InvalidMessage("The mail service does not accept this mail."));
                }
                Err(error) => {
                    tracing::warn!(error = format!("{error:#}"), "failed to submit a mail");
                    if error.is::<Unauthorized>() {
                        return Err(SendError::Unavailable);
                    }
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Counts a call of worker code.
    pub fn count<T>(&self, result: &Result<T, SendError>) {
        self.metrics.count_send(result.as_ref().map_or_else(SendError::code, |_| "ok"));
    }
}

/// Returns whether the control plane would refuse every mail of the project at the moment. A full mailbox may have space
/// for a smaller mail.
const fn applies_to_project(code: MailRefusal) -> bool {
    matches!(code, MailRefusal::RateLimited | MailRefusal::NotGranted)
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    #[tokio::test]
    async fn unreachable_control_plane_is_unavailable_after_the_deadline() {
        let mailer = Mailer::new(Core::unreachable(), MailMetrics::new(&Registry::new()).unwrap());
        let mailer = Mailer { deadline: Duration::from_millis(200), ..mailer };
        let sent = mailer.send("prj_1", OutgoingMail::default()).await;
        assert_eq!(sent, Err(SendError::Unavailable));
    }
}
