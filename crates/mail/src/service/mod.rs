//! The mail service. Each submodule is one topic.

mod delivery;
mod event;
mod hook;
mod inbound;
mod log;
mod purge;
mod receptions;
mod relay;
mod submission;
mod suppression;

use std::sync::Arc;

use kernel::{KeyedSemaphores, Limits, OrgId, Plan, ProjectId, Time};
use store::Store;

use crate::dkim::DkimSigner;
use crate::error::MailError;
use crate::ports::Ports;
use crate::raw::RawMails;
use receptions::Receptions;

pub use hook::{MailHook, NotificationSource};
pub use relay::MailRelay;

type Result<T> = std::result::Result<T, MailError>;

/// The maximum length of a mail's detail, in characters.
const MAX_DETAIL_CHARS: usize = 2000;

/// The minimum number of bytes that a message counts towards the limit of its project. Its object and its row also need
/// space.
const MIN_STORED_BYTES: u64 = 4096;

/// The project of a request, with its organization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    pub org: OrgId,
    pub plan: Plan,
    pub project: ProjectId,
}

/// The mail service. Cheap to clone.
#[derive(Clone)]
pub struct Mail {
    store: Store,
    raws: RawMails,
    limits: Limits,
    /// The parent domain of the projects' mail domains. `None` if the installation has no mail.
    domain: Option<String>,
    dkim: Option<DkimSigner>,
    ports: Ports,
    receptions: Arc<Receptions>,
    /// Permits for the transactions of submissions.
    submissions: Arc<KeyedSemaphores<ProjectId>>,
}

impl Mail {
    /// Creates the service.
    #[must_use]
    pub fn new(store: Store, raws: RawMails, limits: Limits, domain: Option<String>, ports: Ports) -> Self {
        let receptions = Arc::new(Receptions::new());
        let submissions = Arc::new(KeyedSemaphores::new(submission::MAX_TRANSACTIONS));
        Self { store, raws, limits, domain, dkim: None, ports, receptions, submissions }
    }

    /// Signs outgoing mail.
    #[must_use]
    pub fn with_dkim(self, dkim: Option<DkimSigner>) -> Self {
        Self { dkim, ..self }
    }

    /// Returns the number of bytes of received mail, and of sent mail, that a project may store. After the end of the
    /// pro plan, this is still the number of the pro plan while mail is kept as on it: only the retention deletes mail.
    fn max_stored_bytes(&self, plan: Plan, pro_retention_until: Option<Time>) -> u64 {
        let plan = plan.for_retention(pro_retention_until, self.store.clock_rng().now());
        self.limits.for_plan(plan).mail_bytes
    }
}

/// Returns the bytes that a mail counts towards the limit of its project: those of its message, and those of the long
/// texts in its row. Otherwise small messages to many recipients could fill the database.
fn stored_bytes(message: u64, recipients: &[String], subject: Option<&str>) -> i64 {
    let texts = recipients.iter().map(String::len).sum::<usize>() + subject.map_or(0, str::len);
    i64::try_from(message.max(MIN_STORED_BYTES) + texts as u64).unwrap_or(i64::MAX)
}

/// Converts a text from outside into one line of at most `max` characters that Postgres accepts.
fn one_line(text: &str, max: usize) -> String {
    text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
