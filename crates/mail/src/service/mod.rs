//! The mail service. Each submodule is one topic.

mod delivery;
mod event;
mod hook;
mod inbound;
mod log;
mod purge;
mod relay;
mod submission;
mod suppression;

use kernel::{Limits, OrgId, Plan, ProjectId};
use store::Store;

use crate::dkim::DkimSigner;
use crate::error::MailError;
use crate::ports::Ports;
use crate::raw::RawMails;

pub use hook::{MailHook, NotificationSource};
pub use relay::MailRelay;

type Result<T> = std::result::Result<T, MailError>;

/// The longest detail of a mail, in characters.
const MAX_DETAIL_CHARS: usize = 2000;

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
}

impl Mail {
    /// Creates the service.
    #[must_use]
    pub const fn new(store: Store, raws: RawMails, limits: Limits, domain: Option<String>, ports: Ports) -> Self {
        Self { store, raws, limits, domain, dkim: None, ports }
    }

    /// Signs outgoing mail.
    #[must_use]
    pub fn with_dkim(self, dkim: Option<DkimSigner>) -> Self {
        Self { dkim, ..self }
    }
}

/// Returns a text from outside as one line of at most `max` characters, which Postgres accepts.
fn one_line(text: &str, max: usize) -> String {
    text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
