//! Types that several areas use.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use serde::Deserialize;

use crate::{Secret, words};

words! {
    pub enum AccessMode {
        Public = "public",
        Org = "org",
        Password = "password",
    }
}

/// Who uploaded a deployment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Author {
    pub subject: String,
    pub user_id: UserId,
}

/// One look for a proof.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub at: Time,
    pub error: Option<String>,
    pub expected: String,
    pub observed: Option<Vec<String>>,
    pub proof: Proof,
}

/// A version of a project. Immutable, and never deleted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    pub asset_count: i32,
    pub created_at: Time,
    pub created_by: Author,
    /// What the manifest declares.
    pub declares: Resources,
    /// Of the upload.
    pub digest: Digest,
    /// Where the bundle was made from; for display only.
    pub git: Git,
    pub has_worker: bool,
    pub id: DeploymentId,
    /// Whether it is the one to be served; `status` tells whether it is.
    pub live: bool,
    /// Bytes of the upload.
    pub size_bytes: i64,
    pub status: DeploymentStatus,
    /// Why it crashed or failed, in words for who deployed it.
    pub status_message: Option<String>,
    /// 1, 2, 3 … without gaps within the project.
    pub version: i32,
}

/// an id that starts with dep_
pub type DeploymentId = String;

words! {
    pub enum DeploymentStatus {
        Pending = "pending",
        Serving = "serving",
        Crashed = "crashed",
        Failed = "failed",
        Retired = "retired",
    }
}

/// sha256: and 64 lowercase hex digits
pub type Digest = String;

/// an e-mail address of at most 254 characters, 64 of them before the @
pub type Email = String;

/// What every failure looks like (contract section 1, "Error envelope").
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Error {
    /// What clients read.
    pub code: String,
    /// What a program needs to know beyond the code.
    pub details: Option<serde_json::Map<String, serde_json::Value>>,
    /// For people.
    pub message: String,
    /// Also in the `X-Request-Id` header.
    pub request_id: String,
}

/// Where a bundle was made from, as the uploader says. Never used to decide anything.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Git {
    pub branch: Option<String>,
    /// 7 to 64 hex digits.
    pub commit: Option<String>,
    /// Whether there were changes that no commit holds.
    pub dirty: Option<bool>,
    /// The first line of the commit's message, at most 200 characters.
    pub message: Option<String>,
}

/// A name under which a project is reached.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hostname {
    /// What was looked up last, and seen; empty once the ownership is proved.
    pub checks: Vec<Check>,
    pub created_at: Time,
    pub kind: HostnameKind,
    pub last_error: Option<String>,
    /// Lowercase punycode.
    pub name: String,
    pub state: HostnameState,
    pub verification_token: Option<String>,
    pub verified_at: Option<Time>,
    /// Records that would prove the ownership; empty once it is proved.
    pub verify: Vec<VerifyRecord>,
}

words! {
    pub enum HostnameKind {
        Default = "default",
        Custom = "custom",
    }
}

words! {
    pub enum HostnameState {
        PendingDns = "pending_dns",
        Active = "active",
    }
}

/// Something an organization should know of.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    pub created_at: Time,
    pub id: NotificationId,
    pub kind: NotificationKind,
    pub message: String,
    /// The project's name at the time.
    pub project: Option<String>,
    /// When a mail of it went out; null while it is queued, or when no admin has an address.
    pub sent_at: Option<Time>,
    pub title: String,
}

/// an id that starts with ntf_
pub type NotificationId = String;

words! {
    pub enum NotificationKind {
        LimitProjects = "limit.projects",
        LimitStorage = "limit.storage",
        LimitEmail = "limit.email",
        LimitAiCredit = "limit.ai_credit",
        BackupFailed = "backup.failed",
        BackupStale = "backup.stale",
        RestoreCompleted = "restore.completed",
        RestoreFailed = "restore.failed",
        DatabaseDeleted = "database.deleted",
        DomainExpiring = "domain.expiring",
        PaymentFailed = "payment.failed",
        LimitDatabase = "limit.database",
        HostnameUnproved = "hostname.unproved",
        HostnameTakenOver = "hostname.taken_over",
        CertificateFailed = "certificate.failed",
    }
}

/// An organization as one of its members sees it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Org {
    pub created_at: Time,
    pub id: OrgId,
    pub name: String,
    /// Made with the user's account, for one person.
    pub personal: bool,
    pub plan: Plan,
    /// Projects its plan allows.
    pub project_limit: i32,
    /// The caller's role in it.
    pub role: Role,
    pub slug: Slug,
}

/// an id that starts with org_
pub type OrgId = String;

words! {
    pub enum Plan {
        Free = "free",
        Pro = "pro",
    }
}

words! {
    pub enum Proof {
        Zone = "zone",
        Txt = "txt",
        Cname = "cname",
    }
}

words! {
    pub enum Provider {
        Dev = "dev",
        Codehost = "codehost",
    }
}

/// One yes or no for each optional resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    pub ai: bool,
    pub auth: bool,
    pub database: bool,
    pub email: bool,
    pub storage: bool,
}

words! {
    pub enum Role {
        Viewer = "viewer",
        Member = "member",
        Admin = "admin",
    }
}

/// 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
pub type Slug = String;

/// a point in time: RFC 3339, UTC, milliseconds
pub type Time = String;

/// a credential, shown in this answer alone
pub type Token = Secret;

/// an id that starts with usr_
pub type UserId = String;

/// A record to publish.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyRecord {
    pub name: String,
    pub r#type: VerifyRecordType,
    pub value: String,
}

words! {
    pub enum VerifyRecordType {
        Txt = "TXT",
        Cname = "CNAME",
    }
}
