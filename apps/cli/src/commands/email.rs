//! `svc email`: the mail address of a project, its mail log, and its suppressed recipients.

use clap::ValueEnum;
use client::types::{EmailListLogQuery, EmailStatus, MailLogEntry};
use client::{Client, Method};

use super::DOWNLOAD_TIMEOUT;
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{Output, bytes, fields, or_dash, yes_or_no};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Email {
    /// Show the address of the project, its limits and its usage
    Status,
    /// Enable email, which worker code uses as env.email and email()
    Enable,
    /// Disable email: mail to the address is then refused
    Disable,
    /// List the mail that the project sent and received, newest first
    Log {
        /// List only received or only sent mail
        #[arg(long)]
        direction: Option<Direction>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Show a mail of the log
    Show { id: String },
    /// Print the raw message of a mail (RFC 5322)
    Raw { id: String },
    /// List the recipients that the project may not send to, because mail bounced or they reported it as spam
    Suppressions(PageArgs),
    /// Allow mail to a suppressed recipient again
    Unsuppress { address: String },
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Direction {
    In,
    Out,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

impl Email {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::Status => svc.out.response(&client.email_get(&org, &project).send().await?, show_status),
            Self::Enable => {
                let status = client.email_grant(&org, &project).send().await?;
                svc.out.response(&status, show_status)?;
                svc.out.success("enabled email: worker code uses it as env.email, and receives mail in email()");
                Ok(())
            }
            Self::Disable => {
                let revoked = client.email_revoke(&org, &project).send().await?;
                svc.out.empty_response(&revoked, "disabled email: mail to the address is refused, the log is kept")
            }
            Self::Log { direction, page } => {
                let (direction, paging) = (direction.map(|it| it.name().to_owned()), page.paging());
                let query = EmailListLogQuery { direction, limit: paging.limit, cursor: paging.cursor };
                let page = client.email_list_log(&org, &project, &query).send().await?;
                svc.out.page(&page, ["TIME", "ID", "DIRECTION", "FROM", "TO", "SUBJECT", "OUTCOME"], row)
            }
            Self::Show { id } => svc.out.response(&client.email_get_mail(&org, &project, &id).send().await?, show),
            Self::Raw { id } => print_raw(&client, (&org, &project), &id).await,
            Self::Suppressions(page) => {
                let page = client.email_list_suppressions(&org, &project, &page.paging()).send().await?;
                svc.out.page(&page, ["ADDRESS", "REASON", "SINCE", "DETAIL"], |it| {
                    let reason = it.reason.as_str().to_owned();
                    [it.address.clone(), reason, it.created_at.clone(), or_dash(it.detail.as_deref())]
                })
            }
            Self::Unsuppress { address } => {
                let cleared = client.email_delete_suppression(&org, &project, &address).send().await?;
                svc.out.empty_response(&cleared, format!("{address} is not suppressed"))
            }
        }
    }
}

async fn print_raw(client: &Client, (org, project): (&str, &str), id: &str) -> Result<(), CliError> {
    let path = ["v1", "orgs", org, "projects", project, "email", "log", id, "raw"];
    Output::download(&client.call::<()>(Method::GET, &path).timeout(DOWNLOAD_TIMEOUT).send_raw().await?)
}

fn show_status(status: &EmailStatus) -> String {
    let EmailStatus { granted, address, from, hourly_limit, sent_last_hour, sent_last24h, .. } = status;
    let EmailStatus { received_bytes, sent_bytes, max_bytes, .. } = status;
    let sent = format!("{sent_last_hour} of {hourly_limit} in the last hour, {sent_last24h} in 24 hours");
    let (received, sent_bytes, max) = (bytes(*received_bytes), bytes(*sent_bytes), bytes(*max_bytes));
    let stored = format!("{received} of {max} received, {sent_bytes} of {max} sent");
    fields(&[
        ["enabled", yes_or_no(*granted)],
        ["address", &format!("any@{address}")],
        ["from", from],
        ["sent", &sent],
        ["received", &format!("{} in 24 hours", status.received_last24h)],
        ["stored", &stored],
        ["log", &format!("kept for {} days", status.keep_days)],
    ])
}

fn row(mail: &MailLogEntry) -> [String; 7] {
    [
        mail.created_at.clone(),
        mail.id.clone(),
        mail.direction.as_str().to_owned(),
        sender(mail),
        mail.to.join(", "),
        or_dash(mail.subject.as_deref()),
        mail.outcome.as_str().to_owned(),
    ]
}

fn show(mail: &MailLogEntry) -> String {
    let raw = if mail.has_raw { format!("svc email raw {}", mail.id) } else { "not stored".to_owned() };
    fields(&[
        ["id", &mail.id],
        ["time", &mail.created_at],
        ["direction", mail.direction.as_str()],
        ["from", &sender(mail)],
        ["to", &mail.to.join(", ")],
        ["subject", &or_dash(mail.subject.as_deref())],
        ["outcome", mail.outcome.as_str()],
        ["detail", &or_dash(mail.detail.as_deref())],
        ["SPF", &or_dash(mail.spf.as_deref())],
        ["size", &bytes(mail.size_bytes)],
        ["raw", &raw],
    ])
}

/// Bounce messages have no sender.
fn sender(mail: &MailLogEntry) -> String {
    or_dash(Some(mail.from.as_str()).filter(|from| !from.is_empty()))
}
