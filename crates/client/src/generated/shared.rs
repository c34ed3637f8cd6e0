//! Types that several areas use.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use serde::Deserialize;

use crate::{Page, Secret, open_enum};

open_enum! {
    pub enum AccessMode {
        Public = "public",
        Org = "org",
        Password = "password",
    }
}

/// An audit event of an organization.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// The user who acted. Null for the operator, the system and anonymous callers.
    pub actor: Option<UserId>,
    /// The subject of the user, `operator`, or `system` for the service itself. Null for anonymous callers and deleted
    /// users.
    pub actor_name: Option<String>,
    pub created_at: Time,
    /// The id of the credential of the request. Null for the operator, the system and anonymous callers, and for
    /// changes that the service makes for a user, such as the end of a purchase.
    pub credential: Option<String>,
    pub data: serde_json::Map<String, serde_json::Value>,
    /// The name of the event, such as `member.add`.
    pub event: String,
    pub id: AuditId,
    /// The id of the request.
    pub request_id: String,
    /// The id or name of the affected resource.
    pub target: String,
}

pub type AuditEventPage = Page<AuditEvent>;

/// an id that starts with aud_
pub type AuditId = String;

/// The user who uploaded a deployment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Author {
    pub subject: String,
    pub user_id: UserId,
}

/// The URL of a checkout or of the portal.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BillingPage {
    /// The URL, which is valid for one visit.
    pub url: String,
}

/// The result of one ownership check.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    pub at: Time,
    pub error: Option<String>,
    pub expected: String,
    pub observed: Option<Vec<String>>,
    pub proof: Proof,
}

/// A version of a project. Its bundle never changes, and it is never deleted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    pub asset_count: i32,
    pub created_at: Time,
    pub created_by: Author,
    /// The resources that the manifest declares.
    pub declares: Resources,
    /// The digest of the upload.
    pub digest: Digest,
    /// The source of the bundle. For display only.
    pub git: Git,
    pub has_worker: bool,
    pub id: DeploymentId,
    /// Whether this is the desired deployment of the project; `status` is the observed state.
    pub live: bool,
    /// The size of the upload, in bytes.
    pub size_bytes: i64,
    pub status: DeploymentStatus,
    /// The cause of a crash or failure, for the user who deployed.
    pub status_message: Option<String>,
    /// The number of the deployment within the project: 1, 2, 3 and so on, without gaps.
    pub version: i32,
}

/// an id that starts with dep_
pub type DeploymentId = String;

open_enum! {
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

/// The default body of an error response (contract section 1, "Error envelope").
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Error {
    /// The machine-readable error code.
    pub code: String,
    /// Additional data for programs.
    pub details: Option<serde_json::Map<String, serde_json::Value>>,
    /// A human-readable explanation.
    pub message: String,
    /// The id of the request, as in the `X-Request-Id` header.
    pub request_id: String,
}

/// A backup of a project's database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// The time of the backup. The generation contains the state of the database at this time.
    pub created_at: Time,
    /// The epoch of the project's placement at the time of the backup.
    pub epoch: i64,
    pub kind: GenerationKind,
    /// The name of the stored object.
    pub offsite_key: String,
    /// The number of the generation. It increases, and is unique for the life of the project.
    pub seq: i64,
    /// The SHA-256 of the stored object, as 64 hex digits.
    pub sha256: String,
    /// The size of the stored object, in bytes.
    pub size_bytes: i64,
}

open_enum! {
    pub enum GenerationKind {
        Scheduled = "scheduled",
        PreRestore = "pre_restore",
        Final = "final",
    }
}

/// The source of a bundle, as stated by the uploader. For display only.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Git {
    pub branch: Option<String>,
    /// The id of the commit: 7 to 64 hex digits.
    pub commit: Option<String>,
    /// Whether there were uncommitted changes.
    pub dirty: Option<bool>,
    /// The first line of the commit's message, at most 200 characters.
    pub message: Option<String>,
}

/// A hostname of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hostname {
    /// The results of the last verification; empty after it succeeds.
    pub checks: Vec<Check>,
    pub created_at: Time,
    /// `Strict-Transport-Security`. Null if the platform adds no such header.
    pub hsts: Option<Hsts>,
    pub kind: HostnameKind,
    pub last_error: Option<String>,
    /// The name in lowercase punycode.
    pub name: String,
    pub state: HostnameState,
    /// The TLS certificate.
    pub tls: HostnameTls,
    pub verification_token: Option<String>,
    pub verified_at: Option<Time>,
    /// The records that prove ownership; empty after verification.
    pub verify: Vec<VerifyRecord>,
}

open_enum! {
    pub enum HostnameKind {
        Default = "default",
        Custom = "custom",
    }
}

open_enum! {
    pub enum HostnameState {
        PendingDns = "pending_dns",
        Active = "active",
    }
}

/// The TLS certificate of a hostname.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HostnameTls {
    /// The expiry of the current certificate.
    pub expires_at: Option<Time>,
    /// The reason why the last attempt to issue or renew the certificate failed.
    pub last_error: Option<String>,
    pub state: TlsState,
}

/// HTTP Strict Transport Security of a hostname (RFC 6797): browsers use only https for it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hsts {
    /// Whether this also applies to all subdomains of the hostname.
    pub include_sub_domains: bool,
    /// How long browsers remember this after each response, in seconds. 0 makes them forget it.
    pub max_age: i32,
    /// Whether browsers may include the hostname in their preload lists.
    pub preload: bool,
}

/// A notification of an organization.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    pub created_at: Time,
    pub id: NotificationId,
    pub kind: NotificationKind,
    pub message: String,
    /// The project's name at the time of the notification.
    pub project: Option<String>,
    /// The time at which the first mail was sent. Null while the mails are queued, or if no admin has an address.
    pub sent_at: Option<Time>,
    pub title: String,
}

/// an id that starts with ntf_
pub type NotificationId = String;

open_enum! {
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
        ZoneTakenOver = "zone.taken_over",
    }
}

/// An organization, as shown to a member.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Org {
    pub created_at: Time,
    pub id: OrgId,
    pub name: String,
    /// Whether a user's first sign-in created the organization. It can have other members, like any organization.
    pub personal: bool,
    pub plan: Plan,
    /// The number of projects that the plan allows.
    pub project_limit: i32,
    /// The caller's role.
    pub role: Role,
    pub slug: Slug,
}

/// an id that starts with org_
pub type OrgId = String;

open_enum! {
    pub enum Plan {
        Free = "free",
        Pro = "pro",
    }
}

/// an id that starts with prj_
pub type ProjectId = String;

open_enum! {
    pub enum Proof {
        Zone = "zone",
        Txt = "txt",
        Cname = "cname",
    }
}

open_enum! {
    pub enum Provider {
        Dev = "dev",
        Codehost = "codehost",
    }
}

/// A flag for each optional resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    pub ai: bool,
    pub auth: bool,
    pub database: bool,
    pub email: bool,
    pub storage: bool,
}

open_enum! {
    pub enum Role {
        Viewer = "viewer",
        Member = "member",
        Admin = "admin",
    }
}

open_enum! {
    pub enum Scope {
        AccountRead = "account:read",
        OrgRead = "org:read",
        OrgWrite = "org:write",
        ProjectRead = "project:read",
        ProjectWrite = "project:write",
        Deploy = "deploy",
        DnsRead = "dns:read",
        DnsWrite = "dns:write",
        BillingRead = "billing:read",
        BillingWrite = "billing:write",
        GitRead = "git:read",
        GitWrite = "git:write",
        AiUse = "ai:use",
    }
}

/// 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
pub type Slug = String;

/// a point in time: RFC 3339, UTC, milliseconds
pub type Time = String;

open_enum! {
    pub enum TlsState {
        Off = "off",
        Pending = "pending",
        Active = "active",
        Failed = "failed",
    }
}

/// a credential, returned only in this response
pub type Token = Secret;

/// an id that starts with usr_
pub type UserId = String;

/// A DNS record to publish.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyRecord {
    pub name: String,
    pub r#type: VerifyRecordType,
    pub value: String,
}

open_enum! {
    pub enum VerifyRecordType {
        Txt = "TXT",
        Cname = "CNAME",
    }
}
