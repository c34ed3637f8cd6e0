//! The mail address of a project, which worker code uses as `env.email` and `email()`.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::Deserialize;

use super::shared::Time;
use crate::{Call, Client, Page, Paging, Upload, open_enum};

/// The mail address of a project, with its limits and usage.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmailStatus {
    /// The domain of the project's addresses: `email()` receives the mail for each local part at it. If email is not
    /// granted, the domain that a grant would give. Empty if the installation has no mail.
    pub address: String,
    /// The default sender.
    pub from: String,
    pub granted: bool,
    /// The maximum number of calls of `send()` per hour on the organization's plan.
    pub hourly_limit: i32,
    /// The number of days for which the log is kept.
    pub keep_days: i32,
    /// The bytes of received mail, and of sent mail, that the project may store. A mail counts as at least 4 KiB, plus
    /// its recipients and its subject.
    pub max_bytes: i64,
    /// The bytes of the stored received mail. At `maxBytes`, other mail is refused.
    pub received_bytes: i64,
    /// The number of mails that were received in the last 24 hours. At most 100,000 are counted.
    pub received_last24h: i64,
    /// The bytes of the stored sent mail. `send()` fails if another mail would exceed `maxBytes`.
    pub sent_bytes: i64,
    pub sent_last24h: i64,
    /// The number of calls of `send()` in the last hour, without refused calls.
    pub sent_last_hour: i64,
}

open_enum! {
    pub enum MailDirection {
        In = "in",
        Out = "out",
    }
}

/// an id that starts with mail_
pub type MailId = String;

/// A mail in the log.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MailLogEntry {
    pub created_at: Time,
    /// The reason for the outcome, such as the reply of a server.
    pub detail: Option<String>,
    pub direction: MailDirection,
    /// The sender in the envelope; empty for the null sender.
    pub from: String,
    /// Whether the raw message can be downloaded.
    pub has_raw: bool,
    pub id: MailId,
    pub outcome: MailOutcome,
    /// The length of the raw message in bytes.
    pub size_bytes: i64,
    /// The SPF result of a received mail (RFC 7208 section 2.6), in lower case.
    pub spf: Option<String>,
    /// The decoded subject, without control characters.
    pub subject: Option<String>,
    /// The recipients in the envelope; for a received mail, only those of this project.
    pub to: Vec<String>,
}

pub type MailLogEntryPage = Page<MailLogEntry>;

open_enum! {
    pub enum MailOutcome {
        Queued = "queued",
        Sent = "sent",
        Delivered = "delivered",
        Bounced = "bounced",
        Complained = "complained",
        Rejected = "rejected",
        Received = "received",
    }
}

/// A recipient that the project may not send to.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Suppression {
    /// The address, in lower case.
    pub address: String,
    pub created_at: Time,
    /// The report of the recipient's server.
    pub detail: Option<String>,
    pub reason: SuppressionReason,
}

pub type SuppressionPage = Page<Suppression>;

open_enum! {
    pub enum SuppressionReason {
        Bounce = "bounce",
        Complaint = "complaint",
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct EmailListLogQuery {
    /// Only received mail (`in`) or only sent mail (`out`); empty for both.
    pub direction: Option<String>,
    /// The largest number of items to return. Values above 200 count as 200.
    pub limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    pub cursor: Option<String>,
}

impl Client {
    /// Allow mail to a suppressed recipient again
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/email/suppressions/{address}`
    pub fn email_delete_suppression(&self, org_slug: &str, project_name: &str, address: &str) -> Call<()> {
        self.operation(
            "email.delete_suppression",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "email", "suppressions", address],
        )
    }

    /// Get the mail address of a project, with limits and usage
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/email`
    pub fn email_get(&self, org_slug: &str, project_name: &str) -> Call<EmailStatus> {
        self.operation("email.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "email"])
    }

    /// Get a mail in the log
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/email/log/{mailId}`
    pub fn email_get_mail(&self, org_slug: &str, project_name: &str, mail_id: &str) -> Call<MailLogEntry> {
        self.operation(
            "email.get_mail",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "email", "log", mail_id],
        )
    }

    /// Enable email for a project, or return the existing address
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/email`
    pub fn email_grant(&self, org_slug: &str, project_name: &str) -> Call<EmailStatus> {
        self.operation("email.grant", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "email"])
            .idempotent()
    }

    /// List the mail that a project sent and received, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/email/log`
    pub fn email_list_log(
        &self,
        org_slug: &str,
        project_name: &str,
        query: &EmailListLogQuery,
    ) -> Call<MailLogEntryPage> {
        self.operation(
            "email.list_log",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "email", "log"],
        )
        .query("direction", query.direction.as_ref())
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }

    /// List the recipients that a project may not send to
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/email/suppressions`
    pub fn email_list_suppressions(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<SuppressionPage> {
        self.operation(
            "email.list_suppressions",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "email", "suppressions"],
        )
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }

    /// Receive a delivery notification of the mail relay
    ///
    /// `POST /v1/hooks/mailer`
    pub fn email_receive_notification(&self, body: Upload) -> Call<()> {
        self.operation("email.receive_notification", Method::POST, &["v1", "hooks", "mailer"])
            .upload("text/plain", body)
    }

    /// Disable email for a project, and free its address
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/email`
    pub fn email_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation("email.revoke", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name, "email"])
    }
}
