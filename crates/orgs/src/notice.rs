//! The notices that an organization can get (contract section 4), and their texts.
//!
//! A context that raises notices has its own enum in its `ports.rs`; `apps/server` maps it to this one.

use kernel::{NamedProject, Time};

use crate::model::NotificationKind;

/// A notification to raise. `reason` is a human-readable clause without a full stop, unless stated otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A project was not created because the plan allows at most `limit` projects.
    ProjectLimit { limit: u32 },
    /// A write to the project's storage was refused.
    StorageLimit { project: NamedProject, limit_bytes: u64 },
    /// A mail of the project was not sent.
    EmailLimit { project: NamedProject, per_hour: u32 },
    /// The organization's AI credit ran out.
    AiCreditLimit,
    /// A write to the project's database was refused.
    DatabaseLimit { project: NamedProject, limit_bytes: u64 },
    /// A backup of the project's database failed. `reason` also states the consequence, and can have several
    /// sentences.
    BackupFailed { project: NamedProject, reason: String },
    /// The project's database has had no successful backup since this time, or never if `since` is `None`.
    BackupStale { project: NamedProject, since: Option<Time> },
    /// The project's database was restored to a generation.
    RestoreCompleted { project: NamedProject, epoch: i64, seq: i64 },
    /// The restore of the project's database to a generation failed.
    RestoreFailed { project: NamedProject, epoch: i64, seq: i64, reason: String },
    /// The project's database was deleted.
    DatabaseDeleted { project: NamedProject },
    /// A registered domain expires soon.
    DomainExpiring { domain: String, expires_at: Time },
    /// A charge was declined. If it was an automatic top-up, the automatic top-up was turned off.
    PaymentFailed { charge: Charge },
    /// An active hostname failed its ownership check. It is served until this time.
    HostnameUnproved { project: NamedProject, hostname: String, until: Time },
    /// Another project, usually of another organization, took over a hostname of the project.
    HostnameTakenOver { project: NamedProject, hostname: String },
    /// The project took over a hostname of another project.
    HostnameAcquired { project: NamedProject, hostname: String },
    /// The certificate of a hostname of the project expires soon or has expired, and was not renewed.
    CertificateFailed { project: NamedProject, hostname: String, reason: String, expires_at: Time },
    /// Another organization took over these zones, at least one. `record` is the name of the TXT record that proves its
    /// ownership.
    ZonesTakenOver { zones: Vec<String>, record: String },
}

/// The purpose of a declined charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Charge {
    /// The organization's plan.
    Plan,
    /// The renewal of a domain.
    Renewal { domain: String },
    /// An automatic top-up of AI credit.
    TopUp,
}

const DAY: i64 = 24 * 3600;

impl Notice {
    /// Returns the kind, the project (`None` for the whole organization), and the deduplication interval in seconds, in
    /// which the same kind is not raised again for the same project. A kind without an interval is always raised,
    /// because its context raises each notice only once.
    pub(crate) fn deduplication(&self) -> (NotificationKind, Option<&NamedProject>, Option<i64>) {
        use NotificationKind as Kind;
        match self {
            Self::ProjectLimit { .. } => (Kind::LimitProjects, None, Some(DAY)),
            Self::StorageLimit { project, .. } => (Kind::LimitStorage, Some(project), None),
            Self::EmailLimit { project, .. } => (Kind::LimitEmail, Some(project), None),
            Self::AiCreditLimit => (Kind::LimitAiCredit, None, None),
            Self::DatabaseLimit { project, .. } => (Kind::LimitDatabase, Some(project), None),
            Self::BackupFailed { project, .. } => (Kind::BackupFailed, Some(project), None),
            Self::BackupStale { project, .. } => (Kind::BackupStale, Some(project), None),
            Self::RestoreCompleted { project, .. } => (Kind::RestoreCompleted, Some(project), None),
            Self::RestoreFailed { project, .. } => (Kind::RestoreFailed, Some(project), None),
            Self::DatabaseDeleted { project } => (Kind::DatabaseDeleted, Some(project), None),
            Self::DomainExpiring { .. } => (Kind::DomainExpiring, None, None),
            Self::PaymentFailed { .. } => (Kind::PaymentFailed, None, None),
            Self::HostnameUnproved { project, .. } => (Kind::HostnameUnproved, Some(project), None),
            Self::HostnameTakenOver { project, .. } | Self::HostnameAcquired { project, .. } => {
                (Kind::HostnameTakenOver, Some(project), None)
            }
            Self::CertificateFailed { project, .. } => (Kind::CertificateFailed, Some(project), None),
            Self::ZonesTakenOver { .. } => (Kind::ZoneTakenOver, None, None),
        }
    }

    /// Returns the title and the message.
    #[must_use]
    pub fn text(&self) -> (String, String) {
        match self {
            Self::ProjectLimit { limit } => (
                "You have reached your plan's project limit".to_owned(),
                format!(
                    "A project was not created because your plan allows {limit}. Delete a project or change your plan."
                ),
            ),
            Self::StorageLimit { project, limit_bytes } => (
                format!("The storage of {project} is full"),
                format!(
                    "A write was rejected because your plan allows {}. Delete objects or change your plan.",
                    mib(*limit_bytes)
                ),
            ),
            Self::EmailLimit { project, per_hour } => (
                format!("{project} reached its mail limit"),
                format!(
                    "A mail was not sent because your plan allows {per_hour} per hour. Send it later or change your \
                     plan."
                ),
            ),
            Self::AiCreditLimit => {
                ("Your AI credit has run out".to_owned(), "AI calls are rejected until you add credit.".to_owned())
            }
            Self::DatabaseLimit { project, limit_bytes } => (
                format!("The database of {project} is full"),
                format!(
                    "You cannot write to it because your plan allows {}. Delete rows or change your plan.",
                    mib(*limit_bytes)
                ),
            ),
            Self::BackupFailed { project, reason } => (format!("The backup of {project} failed"), format!("{reason}.")),
            Self::BackupStale { project, since: Some(since) } => (
                format!("The backup of {project} is out of date"),
                format!("The last successful backup of the database was at {since}."),
            ),
            Self::BackupStale { project, since: None } => {
                (format!("{project} has no backup"), "The database has never been backed up successfully.".to_owned())
            }
            Self::RestoreCompleted { project, epoch, seq } => {
                (format!("{project} was restored"), format!("The database was restored to backup {epoch}.{seq}."))
            }
            Self::RestoreFailed { project, epoch, seq, reason } => (
                format!("The restore of {project} failed"),
                format!("{reason}. Restore backup {epoch}.{seq} again or choose another one."),
            ),
            Self::DatabaseDeleted { project } => (
                format!("The database of {project} was deleted"),
                "The project's worker can no longer use it.".to_owned(),
            ),
            Self::DomainExpiring { domain, expires_at } => (
                format!("{domain} expires soon"),
                format!("Renew it before {expires_at}. After this time, its zone and hostnames stop working."),
            ),
            Self::PaymentFailed { charge } => {
                let next = match charge {
                    Charge::Plan | Charge::Renewal { .. } => "Update your payment method.",
                    Charge::TopUp => {
                        "The automatic top-up is now off. Check your payment method, then turn it on again."
                    }
                };
                ("A payment was declined".to_owned(), format!("The charge for {charge} was declined. {next}"))
            }
            Self::HostnameUnproved { project, hostname, until } => (
                format!("{hostname} failed its ownership check"),
                format!(
                    "The DNS records that prove that you own {hostname} are missing. It is served until {until}. \
                     Publish one of the records again, or remove the hostname from the project {project}."
                ),
            ),
            Self::HostnameTakenOver { project, hostname } => (
                format!("Another project took over {hostname}"),
                format!(
                    "The DNS of {hostname} has the TXT record of another project, which proves its ownership. The \
                     hostname no longer belongs to {project}. If you own the domain, delete that record, add the \
                     hostname again and publish the TXT record that you receive."
                ),
            ),
            Self::HostnameAcquired { project, hostname } => (
                format!("{project} took over {hostname}"),
                format!(
                    "{hostname} belonged to another project. Your TXT record proved that you own it, so it now \
                     belongs to {project}."
                ),
            ),
            Self::CertificateFailed { project, hostname, reason, expires_at } => (
                format!("The certificate of {hostname} was not renewed"),
                format!(
                    "{reason}. The platform retries the order. Without a renewal, browsers reject the certificate \
                     from {expires_at} on. Check the hostname's DNS records in {project}."
                ),
            ),
            Self::ZonesTakenOver { zones, record } => {
                let names = listed(zones);
                (
                    format!("Another organization took over {names}"),
                    format!(
                        "The other organization has proved that it owns the domain, with the TXT record at {record} or \
                         with its zone of a domain above it. These zones are deleted, with all their records: {names}. \
                         If you own the domain, delete that record, create the zone again and publish the TXT record \
                         that you receive."
                    ),
                )
            }
        }
    }
}

/// Lists the first names.
fn listed(names: &[String]) -> String {
    const MAX_SHOWN: usize = 3;
    let shown = names.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more zones"),
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
