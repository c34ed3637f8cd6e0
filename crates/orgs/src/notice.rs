//! Everything that an organization can be notified of (contract section 4), and its texts.
//!
//! A context that raises a notice has an enum of its own kinds in its `ports.rs`; `apps/server` maps it to this one.

use kernel::Time;

use crate::model::NotificationKind;

/// A notification to raise. A `project` is the project's name; a `reason` is a clause for people, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A project was not created, because the plan allows no more than `limit`.
    ProjectLimit { limit: u32 },
    /// A write to the project's storage was refused.
    StorageLimit { project: String, limit_bytes: u64 },
    /// A mail of the project was not sent.
    EmailLimit { project: String, per_hour: u32 },
    /// The organization's AI credit ran out.
    AiCreditLimit,
    /// A write to the project's database was refused.
    DatabaseLimit { project: String, limit_bytes: u64 },
    /// A backup of the project's database failed.
    BackupFailed { project: String, reason: String },
    /// The project's database has had no successful backup since this time; none for never.
    BackupStale { project: String, since: Option<Time> },
    /// The project's database was restored to a generation.
    RestoreCompleted { project: String, epoch: i64, seq: i64 },
    /// The project's database was not restored to a generation.
    RestoreFailed { project: String, epoch: i64, seq: i64, reason: String },
    /// The project's database was deleted.
    DatabaseDeleted { project: String },
    /// A registered domain expires soon.
    DomainExpiring { domain: String, expires_at: Time },
    /// A charge was declined.
    PaymentFailed { charge: Charge },
    /// An active hostname has failed its ownership check; it is served until this time.
    HostnameUnproved { project: String, hostname: String, until: Time },
    /// Another organization has proved that a hostname of the project is theirs.
    HostnameTakenOver { project: String, hostname: String },
    /// No certificate was issued for a hostname of the project.
    CertificateFailed { project: String, hostname: String, reason: String },
}

/// What a declined charge was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// The organization's plan.
    Plan,
    /// The renewal of a domain.
    Renewal { domain: String },
    /// An automatic top-up of AI credit.
    TopUp,
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

impl Notice {
    /// Its kind, the project that it is about (none for the organization as a whole), and for how many seconds the same
    /// kind about the same project is not raised again. Without seconds each is an event of its own, which its context
    /// raises once.
    pub(crate) fn about(&self) -> (NotificationKind, Option<&str>, Option<i64>) {
        use NotificationKind as Kind;
        match self {
            Self::ProjectLimit { .. } => (Kind::LimitProjects, None, Some(DAY)),
            Self::StorageLimit { project, .. } => (Kind::LimitStorage, Some(project), None),
            Self::EmailLimit { project, .. } => (Kind::LimitEmail, Some(project), Some(HOUR)),
            Self::AiCreditLimit => (Kind::LimitAiCredit, None, None),
            Self::DatabaseLimit { project, .. } => (Kind::LimitDatabase, Some(project), Some(DAY)),
            Self::BackupFailed { project, .. } => (Kind::BackupFailed, Some(project), Some(DAY)),
            Self::BackupStale { project, .. } => (Kind::BackupStale, Some(project), Some(DAY)),
            Self::RestoreCompleted { project, .. } => (Kind::RestoreCompleted, Some(project), None),
            Self::RestoreFailed { project, .. } => (Kind::RestoreFailed, Some(project), None),
            Self::DatabaseDeleted { project } => (Kind::DatabaseDeleted, Some(project), None),
            Self::DomainExpiring { .. } => (Kind::DomainExpiring, None, None),
            Self::PaymentFailed { .. } => (Kind::PaymentFailed, None, None),
            Self::HostnameUnproved { project, .. } => (Kind::HostnameUnproved, Some(project), None),
            Self::HostnameTakenOver { project, .. } => (Kind::HostnameTakenOver, Some(project), None),
            Self::CertificateFailed { project, .. } => (Kind::CertificateFailed, Some(project), None),
        }
    }

    /// The title, and the message: what happened, and what the reader can do.
    #[must_use]
    pub fn text(&self) -> (String, String) {
        match self {
            Self::ProjectLimit { limit } => (
                "Your plan's project limit is reached".to_owned(),
                format!("A project was not created: your plan allows {limit}. Delete a project, or change the plan."),
            ),
            Self::StorageLimit { project, limit_bytes } => (
                format!("The storage of {project} is full"),
                format!(
                    "A write was refused: your plan allows {}. Delete objects, or change the plan.",
                    mib(*limit_bytes)
                ),
            ),
            Self::EmailLimit { project, per_hour } => (
                format!("{project} reached its mail limit"),
                format!(
                    "A mail was not sent: your plan allows {per_hour} an hour. Send it again later, or change the plan."
                ),
            ),
            Self::AiCreditLimit => {
                ("Your AI credit has run out".to_owned(), "AI calls are refused until you add credit.".to_owned())
            }
            Self::DatabaseLimit { project, limit_bytes } => (
                format!("The database of {project} is full"),
                format!(
                    "A write was refused: your plan allows {}. Delete rows, or change the plan.",
                    mib(*limit_bytes)
                ),
            ),
            Self::BackupFailed { project, reason } => (
                format!("The backup of {project} failed"),
                format!("{reason}. The backup is repeated; earlier generations are unaffected."),
            ),
            Self::BackupStale { project, since: Some(since) } => (
                format!("The backup of {project} is out of date"),
                format!("The last successful backup of its database was at {since}."),
            ),
            Self::BackupStale { project, since: None } => {
                (format!("{project} has no backup"), "No backup of its database has succeeded yet.".to_owned())
            }
            Self::RestoreCompleted { project, epoch, seq } => (
                format!("{project} is restored"),
                format!("Its database was restored to the generation {epoch}/{seq}."),
            ),
            Self::RestoreFailed { project, epoch, seq, reason } => (
                format!("The restore of {project} failed"),
                format!("{reason}. Restore the generation {epoch}/{seq} again, or choose another one."),
            ),
            Self::DatabaseDeleted { project } => (
                format!("The database of {project} is deleted"),
                "The project's worker can no longer use it.".to_owned(),
            ),
            Self::DomainExpiring { domain, expires_at } => (
                format!("{domain} expires soon"),
                format!("Renew it before {expires_at}. After that, its zone and its hostnames stop working."),
            ),
            Self::PaymentFailed { charge } => (
                "A payment was declined".to_owned(),
                format!("The charge for {charge} was declined. Update your payment method."),
            ),
            Self::HostnameUnproved { project, hostname, until } => (
                format!("{hostname} failed its ownership check"),
                format!(
                    "The records that prove that {hostname} is yours are gone. It is served until {until}. Publish one \
                     of them again, or remove the hostname from the project {project}."
                ),
            ),
            Self::HostnameTakenOver { project, hostname } => (
                format!("{hostname} belongs to another organization now"),
                format!(
                    "Another organization proved that {hostname} is theirs, so {project} no longer serves it. If it is \
                     yours, add it again and publish the TXT record."
                ),
            ),
            Self::CertificateFailed { project, hostname, reason } => (
                format!("{hostname} has no certificate"),
                format!("{reason}. The order is repeated. Check the DNS records of this hostname of {project}."),
            ),
        }
    }
}

impl std::fmt::Display for Charge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan => f.write_str("your plan"),
            Self::Renewal { domain } => write!(f, "the renewal of {domain}"),
            Self::TopUp => f.write_str("the automatic top-up of your AI credit"),
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
