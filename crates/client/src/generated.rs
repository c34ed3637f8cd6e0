//! Written by `cargo xtask codegen` from `docs/openapi.json`. Left out is what answers no JSON: it is for browsers.

use reqwest::Method;
use types::*;

use crate::{Call, Client, Paging, Upload};

/// What is sent and answered. Answers may hold more than a type here says; words may be others than were known.
pub mod types {
    use serde::{Deserialize, Serialize};

    use crate::{Page, Secret, words};

    /// Who may see a project, in short.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Access {
        pub mode: AccessMode,
    }

    /// Where to move the browser.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessAuthorize {
        /// Holds a code: whoever has it, gets in.
        pub redirect: Secret,
    }

    /// A fresh bypass key: the one answer that holds it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessBypass {
        pub created_at: Time,
        /// What to send as `Svc-Access-Bypass`.
        pub secret: Token,
    }

    /// The policy that is to hold.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessChange {
        pub mode: AccessMode,
        /// Replaces the password; left out, the one there is stays.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub password: Option<Secret>,
    }

    words! {
        pub enum AccessMode {
            Public = "public",
            Org = "org",
            Password = "password",
        }
    }

    /// Who may see a project, without any secret.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessPolicy {
        /// Whether there is a key that passes by the policy.
        pub has_bypass: bool,
        /// Whether a password was ever set; it is kept while another mode holds.
        pub has_password: bool,
        pub mode: AccessMode,
        /// The project's creation until something was set.
        pub updated_at: Time,
    }

    /// A personal access token, without what it opens with.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessToken {
        pub created_at: Time,
        /// Null for one that does not expire.
        pub expires_at: Option<Time>,
        pub id: TokenId,
        /// To within ten minutes.
        pub last_used_at: Option<Time>,
        pub name: String,
        /// Its first 12 characters.
        pub prefix: String,
        /// Null for one that reaches whatever its user does.
        pub restrict: Option<Restriction>,
        pub revoked_at: Option<Time>,
        pub scopes: Vec<Scope>,
    }

    /// A fresh token: the one answer that holds it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AccessTokenCreated {
        pub created_at: Time,
        /// Null for one that does not expire.
        pub expires_at: Option<Time>,
        pub id: TokenId,
        /// To within ten minutes.
        pub last_used_at: Option<Time>,
        pub name: String,
        /// Its first 12 characters.
        pub prefix: String,
        /// Null for one that reaches whatever its user does.
        pub restrict: Option<Restriction>,
        pub revoked_at: Option<Time>,
        pub scopes: Vec<Scope>,
        /// What to send as `Authorization: Bearer …`, or as the password of `Basic`.
        pub token: Token,
    }

    pub type AccessTokenPage = Page<AccessToken>;

    /// Something that happened in an organization.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct AuditEvent {
        /// Who; null for the operator and the service itself.
        pub actor: Option<UserId>,
        pub created_at: Time,
        pub data: serde_json::Map<String, serde_json::Value>,
        /// What, such as `member.add`.
        pub event: String,
        pub id: AuditId,
        /// The request it was done by.
        pub request_id: String,
        /// To what: an id or a name.
        pub target: String,
    }

    pub type AuditEventPage = Page<AuditEvent>;

    /// an id that starts with aud_
    pub type AuditId = String;

    /// Who uploaded a deployment.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Author {
        pub subject: String,
        pub user_id: UserId,
    }

    /// The middle of the round trip that lets a member in.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Authorize {
        /// The path it goes back to.
        pub next: String,
        /// The hostname that the browser comes from.
        pub to: String,
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

    /// What this deployment is called and where its parts are: the answer of `GET /v1/config`.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Config {
        pub dashboard_url: String,
        /// What the CNAME of a custom hostname points at.
        pub fallback_origin: String,
        pub git_url: Option<String>,
        pub mail_domain: Option<String>,
        pub name: String,
        pub nameservers: Vec<String>,
        /// Default hostnames lie under it.
        pub platform_domain: String,
        /// Base address of this API.
        pub public_url: String,
        /// The address of a deployed project, with `{hostname}` in place of its name.
        pub site_url: String,
        pub ssh_host: Option<String>,
        pub version: String,
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

    pub type DeploymentPage = Page<Deployment>;

    words! {
        pub enum DeploymentStatus {
            Pending = "pending",
            Serving = "serving",
            Crashed = "crashed",
            Failed = "failed",
            Retired = "retired",
        }
    }

    /// Who wants to sign in, on a deployment with the development login.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct DevLogin {
        /// Replaces the user's address when given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub email: Option<Email>,
        /// Replaces the user's name when given.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<String>,
        pub subject: Subject,
    }

    /// sha256: and 64 lowercase hex digits
    pub type Digest = String;

    /// A DNSKEY record (RFC 4034 section 2).
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Dnskey {
        pub algorithm: i32,
        /// 257 for a key that the parent vouches for, else 256.
        pub flags: i32,
        pub key_tag: i32,
        /// In base64.
        pub public_key: String,
    }

    /// The signing of a zone, with what the signer shows of it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Dnssec {
        /// What the parent is to publish.
        pub ds: Vec<Ds>,
        /// Null before the first look, and where no signer is configured.
        pub signer: Option<SignerView>,
        pub state: DnssecState,
    }

    words! {
        pub enum DnssecState {
            Off = "off",
            Signing = "signing",
            DsPending = "ds_pending",
        }
    }

    /// Whether a zone is to be signed.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct DnssecSwitch {
        pub enabled: bool,
    }

    /// A DS record (RFC 4034 section 5), for the parent of a signed zone.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Ds {
        pub algorithm: i32,
        /// In hexadecimal.
        pub digest: String,
        pub digest_type: i32,
        pub key_tag: i32,
    }

    /// The DS records that were handed to the parent, as far as somebody reports them.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct DsReport {
        /// None for "not yet", which changes nothing.
        pub ds: Vec<Ds>,
    }

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

    /// A backup of a project's database.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Generation {
        pub created_at: Time,
        pub epoch: i64,
        pub kind: GenerationKind,
        pub offsite_key: String,
        pub seq: i64,
        pub sha256: String,
        pub size_bytes: i64,
    }

    words! {
        pub enum GenerationKind {
            Scheduled = "scheduled",
            PreRestore = "pre_restore",
            Final = "final",
        }
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

    /// The service is well.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Health {
        pub status: String,
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

    pub type HostnamePage = Page<Hostname>;

    words! {
        pub enum HostnameState {
            PendingDns = "pending_dns",
            Active = "active",
        }
    }

    /// An open invitation, as admins see it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Invite {
        pub created_at: Time,
        pub email: String,
        pub expires_at: Time,
        pub id: InviteId,
        pub invited_by: UserId,
        pub role: Role,
        /// When the mail went out; null while it is queued, and for good where no mail is configured.
        pub sent_at: Option<Time>,
        pub state: OpenState,
    }

    /// An invitation that was just made or sent again: the one answer that holds its link.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct InviteCreated {
        /// Where whoever has it may join: hand it on where no mail is sent.
        pub accept_url: Secret,
        pub created_at: Time,
        pub email: String,
        pub expires_at: Time,
        pub id: InviteId,
        pub invited_by: UserId,
        pub role: Role,
        /// When the mail went out; null while it is queued, and for good where no mail is configured.
        pub sent_at: Option<Time>,
        pub state: OpenState,
    }

    /// an id that starts with inv_
    pub type InviteId = String;

    pub type InvitePage = Page<Invite>;

    words! {
        pub enum InviteState {
            Pending = "pending",
            Expired = "expired",
            Used = "used",
            Revoked = "revoked",
        }
    }

    /// What the holder of an invitation's link may see of it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct InviteView {
        pub expires_at: Time,
        pub org_name: String,
        pub org_slug: Slug,
        pub role: Role,
        pub state: InviteState,
    }

    /// What came of accepting an invitation.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Joined {
        /// The caller was a member before, and keeps the role they had.
        pub already_member: bool,
        pub org: Org,
        /// The role that the caller has now.
        pub role: Role,
    }

    /// an id that starts with key_
    pub type KeyId = String;

    words! {
        pub enum KeyType {
            Ed25519 = "ed25519",
            EcdsaSha2Nistp256 = "ecdsa-sha2-nistp256",
            EcdsaSha2Nistp384 = "ecdsa-sha2-nistp384",
            EcdsaSha2Nistp521 = "ecdsa-sha2-nistp521",
            Rsa = "rsa",
        }
    }

    /// A login session of the caller's, in the list of them.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct LoginSession {
        pub created_at: Time,
        /// Whether it is the one that asks.
        pub current: bool,
        pub id: SessionId,
        /// To within ten minutes; null when it was used at its start alone.
        pub last_used_at: Option<Time>,
        pub user_agent: Option<String>,
    }

    pub type LoginSessionPage = Page<LoginSession>;

    words! {
        pub enum ManagedBy {
            System = "system",
            Project = "project",
            Certificate = "certificate",
        }
    }

    /// A user in an organization.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Member {
        pub avatar_url: Option<String>,
        pub joined_at: Time,
        pub name: Option<String>,
        pub provider: Provider,
        pub role: Role,
        pub subject: String,
        pub user_id: UserId,
    }

    pub type MemberPage = Page<Member>;

    /// The token to create.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewAccessToken {
        /// In the future; left out, the token lives until it is revoked.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub expires_at: Option<Time>,
        pub name: Title,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub restrict: Option<Restrict>,
        pub scopes: Vec<Scope>,
    }

    /// The name to claim.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewHostname {
        /// In any spelling; it is kept as lowercase punycode.
        pub name: String,
    }

    /// Whom to invite, as what.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewInvite {
        pub email: Email,
        pub role: Role,
    }

    /// The member to add: somebody who has signed in at least once.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewMember {
        pub provider: Provider,
        pub role: Role,
        pub subject: String,
    }

    /// The organization to create.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewOrg {
        /// The slug when left out.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub name: Option<OrgName>,
        pub slug: Slug,
    }

    /// The project to create.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewProject {
        pub name: ProjectName,
    }

    /// The key to add.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewSSHKey {
        /// One line of a `.pub` file.
        pub key: String,
        pub title: Title,
    }

    /// A zone to create.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct NewZone {
        /// A domain name, in Unicode or punycode.
        pub name: String,
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
            HostnameUnproved = "hostname.unproved",
        }
    }

    pub type NotificationPage = Page<Notification>;

    words! {
        pub enum OpenState {
            Pending = "pending",
            Expired = "expired",
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

    /// What is to change of an organization.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct OrgChange {
        pub name: OrgName,
    }

    /// an id that starts with org_
    pub type OrgId = String;

    /// An organization, as one of its members sees it in the list of theirs.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct OrgMembership {
        pub id: OrgId,
        pub name: String,
        pub personal: bool,
        pub plan: Plan,
        pub project_limit: i32,
        pub role: Role,
        pub slug: Slug,
    }

    /// 1 to 100 characters, none of them a control character
    pub type OrgName = String;

    pub type OrgPage = Page<Org>;

    /// What a change of several rrsets comes to.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Patched {
        pub added: Vec<RRset>,
        /// As they are afterwards.
        pub changed: Vec<RRset>,
        /// As they were.
        pub removed: Vec<RRset>,
        /// Of the zone with the change; of the zone as it is, for a dry run.
        pub serial: i32,
    }

    /// Where a project is served from, in short.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Placement {
        /// Raised whenever the project's data moves or is restored.
        pub epoch: i64,
        pub state: String,
    }

    words! {
        pub enum Plan {
            Free = "free",
            Pro = "pro",
        }
    }

    /// A project.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Project {
        pub created_at: Time,
        /// The hostname that came with it.
        pub hostname: String,
        pub id: ProjectId,
        pub name: ProjectName,
        /// The organization's slug.
        pub org: String,
    }

    /// What is to change of a project.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProjectChange {
        /// The default hostname follows it.
        pub name: ProjectName,
    }

    /// The deletion of a project, said twice.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProjectDeletion {
        /// The project's name.
        pub confirm: String,
    }

    /// One project, with what it serves and where.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProjectDetail {
        pub access: Access,
        pub created_at: Time,
        /// The hostname that came with it.
        pub hostname: String,
        pub hostnames: Vec<Hostname>,
        pub id: ProjectId,
        /// Null before the first deployment.
        pub live: Option<Deployment>,
        pub name: ProjectName,
        /// The organization's slug.
        pub org: String,
        /// Null before the first deployment.
        pub placement: Option<Placement>,
        /// Which of the optional resources are granted.
        pub resources: Resources,
    }

    /// an id that starts with prj_
    pub type ProjectId = String;

    /// 1 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
    pub type ProjectName = String;

    /// A project's first page, with what the organization was told about it.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ProjectOverview {
        /// The last five.
        pub deployments: Vec<Deployment>,
        /// The database's most recent one; null without a database.
        pub last_backup: Option<Generation>,
        /// Null before the first deployment.
        pub live: Option<Deployment>,
        /// The last five.
        pub notifications: Vec<Notification>,
        pub resources: ResourceStates,
    }

    pub type ProjectPage = Page<Project>;

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

    /// All records of a name and a type.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RRset {
        /// Who looks after it; null for what users edit.
        #[serde(rename = "managed_by")]
        pub managed_by: Option<ManagedBy>,
        /// Absolute, lowercase punycode, without the final dot.
        pub name: String,
        /// In presentation format (RFC 1035 section 5.1), canonical.
        pub records: Vec<String>,
        /// In seconds.
        pub ttl: i32,
        pub r#type: RecordType,
    }

    words! {
        pub enum RecordType {
            A = "A",
            Aaaa = "AAAA",
            Caa = "CAA",
            Cname = "CNAME",
            Https = "HTTPS",
            Loc = "LOC",
            Mx = "MX",
            Naptr = "NAPTR",
            Ns = "NS",
            Ptr = "PTR",
            Soa = "SOA",
            Srv = "SRV",
            Sshfp = "SSHFP",
            Svcb = "SVCB",
            Tlsa = "TLSA",
            Txt = "TXT",
            Uri = "URI",
        }
    }

    /// Whether an optional resource is asked for, and whether it is there.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ResourceState {
        /// By the manifest of the live deployment.
        pub declared: bool,
        pub granted: bool,
    }

    /// The state of each optional resource.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ResourceStates {
        pub ai: ResourceState,
        pub auth: ResourceState,
        pub database: ResourceState,
        pub email: ResourceState,
        pub storage: ResourceState,
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

    /// What a token is to be limited to. Outside of it the token is answered as if its user were not there.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Restrict {
        /// The slug of an organization that the user belongs to.
        pub org: String,
        /// Names of projects in it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub projects: Option<Vec<String>>,
        /// Names of zones in it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub zones: Option<Vec<String>>,
    }

    /// What a token is limited to, by the names that the places have now.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Restriction {
        /// The slug of the organization.
        pub org: String,
        /// Of its projects these alone; with neither projects nor zones named, the whole organization.
        pub projects: Option<Vec<String>>,
        pub zones: Option<Vec<String>>,
    }

    words! {
        pub enum Role {
            Viewer = "viewer",
            Member = "member",
            Admin = "admin",
        }
    }

    /// The role that a member is to have.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RoleChange {
        pub role: Role,
    }

    /// The deployment to go back to.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Rollback {
        pub version: i32,
    }

    /// The whole content of an rrset.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RrsetContent {
        /// In presentation format (RFC 1035 section 5.1); relative names are completed with the zone.
        pub records: Vec<String>,
        /// In seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ttl: Option<i32>,
    }

    /// The whole content of one of several rrsets.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RrsetPatch {
        /// `@`, a name relative to the zone, or an absolute one.
        pub name: String,
        /// None for deleting the rrset; one that is not there stays so.
        pub records: Vec<String>,
        /// In seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub ttl: Option<i32>,
        pub r#type: String,
    }

    /// Several rrsets, changed together or not at all.
    #[derive(Debug, Clone, PartialEq, Serialize)]
    #[serde(rename_all = "camelCase")]
    pub struct RrsetsPatch {
        /// Answers what would change, and changes nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub dry_run: Option<bool>,
        pub rrsets: Vec<RrsetPatch>,
    }

    /// A key that opens the user's repositories over SSH.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct SSHKey {
        pub created_at: Time,
        /// As `ssh-keygen -l` prints it: `SHA256:…`.
        pub fingerprint: String,
        pub id: KeyId,
        pub last_used_at: Option<Time>,
        pub title: String,
        pub r#type: KeyType,
    }

    pub type SSHKeyPage = Page<SSHKey>;

    words! {
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

    /// A fresh login session: the one answer that holds its token.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Session {
        pub expires_at: Time,
        pub subject: String,
        /// What to send as `Authorization: Bearer …`.
        pub token: Token,
        pub user_id: UserId,
    }

    /// an id that starts with ses_
    pub type SessionId = String;

    /// What was seen at the signer.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct SignerView {
        /// The DS records that it asks for (RFC 7344).
        pub cds: Vec<Ds>,
        /// Why nothing was seen, in words for people; null when all went well.
        pub error: Option<String>,
        pub keys: Vec<Dnskey>,
        pub observed_at: Time,
        /// Of the SOA record that it answers; null when it answers none.
        pub serial: Option<i32>,
    }

    /// 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
    pub type Slug = String;

    /// 1 to 64 characters of a-z, 0-9 and -
    pub type Subject = String;

    /// a point in time: RFC 3339, UTC, milliseconds
    pub type Time = String;

    /// 1 to 100 characters, none of them a control character
    pub type Title = String;

    /// a credential, shown in this answer alone
    pub type Token = Secret;

    /// an id that starts with pat_
    pub type TokenId = String;

    /// A user together with their organizations.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct User {
        pub avatar_url: Option<String>,
        pub created_at: Time,
        pub email: Option<String>,
        pub id: UserId,
        pub name: Option<String>,
        pub orgs: Vec<OrgMembership>,
        pub provider: Provider,
        pub subject: String,
    }

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

    /// A zone.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct Zone {
        pub created_at: Time,
        pub dnssec: ZoneDnssec,
        pub id: ZoneId,
        /// Lowercase punycode, without the final dot.
        pub name: String,
        /// What the registrar is to be told.
        pub nameservers: Vec<String>,
        pub rrset_count: i32,
        /// Of the SOA record; also the zone's ETag.
        pub serial: i32,
    }

    /// A zone with all its rrsets.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ZoneDetail {
        pub created_at: Time,
        pub dnssec: ZoneDnssec,
        pub id: ZoneId,
        /// Lowercase punycode, without the final dot.
        pub name: String,
        /// What the registrar is to be told.
        pub nameservers: Vec<String>,
        pub rrset_count: i32,
        pub rrsets: Vec<RRset>,
        /// Of the SOA record; also the zone's ETag.
        pub serial: i32,
    }

    /// Whether a zone is signed.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub struct ZoneDnssec {
        /// What the parent is to publish.
        pub ds: Vec<Ds>,
        pub state: DnssecState,
    }

    /// an id that starts with zon_
    pub type ZoneId = String;

    pub type ZonePage = Page<Zone>;

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct DeploymentsCreateHeaders {
        /// The commit that the bundle was made from, in hexadecimal.
        pub x_svc_git_commit: Option<String>,
        /// The first line of its message, percent-encoded.
        pub x_svc_git_message: Option<String>,
        /// The branch it was made on, percent-encoded.
        pub x_svc_git_branch: Option<String>,
        /// `true` when files differed from the commit, else `false`.
        pub x_svc_git_dirty: Option<String>,
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct DnsPatchHeaders {
        /// The ETag of the zone that the request is meant for.
        pub if_match: Option<String>,
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct DnsPutHeaders {
        /// The ETag of the zone that the request is meant for.
        pub if_match: Option<String>,
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct DnsRemoveHeaders {
        /// The ETag of the zone that the request is meant for.
        pub if_match: Option<String>,
    }

    #[derive(Debug, Clone, PartialEq, Default)]
    pub struct OrgsAuditQuery {
        /// Only what this user did.
        pub actor: Option<String>,
        /// Only this event.
        pub event: Option<String>,
        /// Only what happened at this time or later.
        pub since: Option<String>,
        /// Only what happened before this time.
        pub until: Option<String>,
        /// The most items to answer; more than 200 are cut to 200.
        pub limit: Option<i64>,
        /// The nextCursor of the page before.
        pub cursor: Option<String>,
    }
}

impl Client {
    /// Let the caller in at a hostname: where to move the browser
    ///
    /// `POST /v1/access/authorize`
    pub fn access_authorize(&self, body: &Authorize) -> Call<AccessAuthorize> {
        self.operation("access.authorize", Method::POST, &["v1", "access", "authorize"]).once().json(body)
    }

    /// Make a key that passes by the policy; it is shown this once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_new(&self, org_slug: &str, project_name: &str) -> Call<AccessBypass> {
        self.operation(
            "access.bypass_new",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
        .once()
    }

    /// Remove the key that passes by the policy
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/access/bypass`
    pub fn access_bypass_revoke(&self, org_slug: &str, project_name: &str) -> Call<()> {
        self.operation(
            "access.bypass_revoke",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "access", "bypass"],
        )
    }

    /// Who may see the project's deployments
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_get(&self, org_slug: &str, project_name: &str) -> Call<AccessPolicy> {
        self.operation("access.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "access"])
    }

    /// Set who may see the project's deployments
    ///
    /// `PUT /v1/orgs/{orgSlug}/projects/{projectName}/access`
    pub fn access_set(&self, org_slug: &str, project_name: &str, body: &AccessChange) -> Call<AccessPolicy> {
        self.operation("access.set", Method::PUT, &["v1", "orgs", org_slug, "projects", project_name, "access"])
            .json(body)
    }

    /// Sign in on a development deployment
    ///
    /// `POST /v1/auth/dev/login`
    pub fn auth_dev_login(&self, body: &DevLogin) -> Call<Session> {
        self.operation("auth.dev_login", Method::POST, &["v1", "auth", "dev", "login"]).json(body)
    }

    /// End the session that the request is made with
    ///
    /// `POST /v1/auth/logout`
    pub fn auth_logout(&self) -> Call<()> {
        self.operation("auth.logout", Method::POST, &["v1", "auth", "logout"]).once()
    }

    /// Register an SSH public key
    ///
    /// `POST /v1/me/ssh-keys`
    pub fn credentials_key_add(&self, body: &NewSSHKey) -> Call<SSHKey> {
        self.operation("credentials.key_add", Method::POST, &["v1", "me", "ssh-keys"]).once().json(body)
    }

    /// Remove an SSH key
    ///
    /// `DELETE /v1/me/ssh-keys/{keyId}`
    pub fn credentials_key_delete(&self, key_id: &str) -> Call<()> {
        self.operation("credentials.key_delete", Method::DELETE, &["v1", "me", "ssh-keys", key_id])
    }

    /// The caller's SSH keys, newest first
    ///
    /// `GET /v1/me/ssh-keys`
    pub fn credentials_keys(&self, query: &Paging) -> Call<SSHKeyPage> {
        self.operation("credentials.keys", Method::GET, &["v1", "me", "ssh-keys"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Create a personal access token; it is shown this once
    ///
    /// `POST /v1/me/tokens`
    pub fn credentials_token_create(&self, body: &NewAccessToken) -> Call<AccessTokenCreated> {
        self.operation("credentials.token_create", Method::POST, &["v1", "me", "tokens"]).once().json(body)
    }

    /// The token that the request is made with
    ///
    /// `GET /v1/me/tokens/current`
    pub fn credentials_token_current(&self) -> Call<AccessToken> {
        self.operation("credentials.token_current", Method::GET, &["v1", "me", "tokens", "current"])
    }

    /// Revoke a personal access token
    ///
    /// `DELETE /v1/me/tokens/{tokenId}`
    pub fn credentials_token_revoke(&self, token_id: &str) -> Call<()> {
        self.operation("credentials.token_revoke", Method::DELETE, &["v1", "me", "tokens", token_id])
    }

    /// The caller's personal access tokens, newest first
    ///
    /// `GET /v1/me/tokens`
    pub fn credentials_tokens(&self, query: &Paging) -> Call<AccessTokenPage> {
        self.operation("credentials.tokens", Method::GET, &["v1", "me", "tokens"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Upload a bundle; it is live at once
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/deployments`
    pub fn deployments_create(
        &self,
        org_slug: &str,
        project_name: &str,
        header: &DeploymentsCreateHeaders,
        body: Upload,
    ) -> Call<Deployment> {
        self.operation(
            "deployments.create",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments"],
        )
        .once()
        .header("X-Svc-Git-Commit", header.x_svc_git_commit.as_ref())
        .header("X-Svc-Git-Message", header.x_svc_git_message.as_ref())
        .header("X-Svc-Git-Branch", header.x_svc_git_branch.as_ref())
        .header("X-Svc-Git-Dirty", header.x_svc_git_dirty.as_ref())
        .upload("application/gzip", body)
    }

    /// One deployment, and how it fares at its node
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/deployments/{version}`
    pub fn deployments_get(&self, org_slug: &str, project_name: &str, version: &str) -> Call<Deployment> {
        self.operation(
            "deployments.get",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments", version],
        )
    }

    /// The deployments, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/deployments`
    pub fn deployments_list(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<DeploymentPage> {
        self.operation(
            "deployments.list",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "deployments"],
        )
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }

    /// Make an older deployment live again
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/rollback`
    pub fn deployments_rollback(&self, org_slug: &str, project_name: &str, body: &Rollback) -> Call<Deployment> {
        self.operation(
            "deployments.rollback",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "rollback"],
        )
        .once()
        .json(body)
    }

    /// Create a zone; the organization's own is answered as it is
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_create(&self, org_slug: &str, body: &NewZone) -> Call<ZoneDetail> {
        self.operation("dns.create", Method::POST, &["v1", "orgs", org_slug, "dns", "zones"]).once().json(body)
    }

    /// Delete a zone with everything in it
    ///
    /// `DELETE /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_delete(&self, org_slug: &str, zone: &str) -> Call<()> {
        self.operation("dns.delete", Method::DELETE, &["v1", "orgs", org_slug, "dns", "zones", zone])
    }

    /// Whether the zone is signed, and what was seen at the signer
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_dnssec(&self, org_slug: &str, zone: &str) -> Call<Dnssec> {
        self.operation("dns.dnssec", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
    }

    /// One zone with all its rrsets
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones/{zone}`
    pub fn dns_get(&self, org_slug: &str, zone: &str) -> Call<ZoneDetail> {
        self.operation("dns.get", Method::GET, &["v1", "orgs", org_slug, "dns", "zones", zone])
    }

    /// The zones of the organization, by name
    ///
    /// `GET /v1/orgs/{orgSlug}/dns/zones`
    pub fn dns_list(&self, org_slug: &str, query: &Paging) -> Call<ZonePage> {
        self.operation("dns.list", Method::GET, &["v1", "orgs", org_slug, "dns", "zones"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Change several rrsets together, or none
    ///
    /// `PATCH /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets`
    pub fn dns_patch(&self, org_slug: &str, zone: &str, header: &DnsPatchHeaders, body: &RrsetsPatch) -> Call<Patched> {
        self.operation("dns.patch", Method::PATCH, &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets"])
            .header("If-Match", header.if_match.as_ref())
            .json(body)
    }

    /// Replace an rrset
    ///
    /// `PUT /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}`
    pub fn dns_put(
        &self,
        org_slug: &str,
        zone: &str,
        name: &str,
        r#type: &str,
        header: &DnsPutHeaders,
        body: &RrsetContent,
    ) -> Call<RRset> {
        self.operation("dns.put", Method::PUT, &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets", name, r#type])
            .header("If-Match", header.if_match.as_ref())
            .json(body)
    }

    /// Delete an rrset
    ///
    /// `DELETE /v1/orgs/{orgSlug}/dns/zones/{zone}/rrsets/{name}/{type}`
    pub fn dns_remove(
        &self,
        org_slug: &str,
        zone: &str,
        name: &str,
        r#type: &str,
        header: &DnsRemoveHeaders,
    ) -> Call<()> {
        self.operation(
            "dns.remove",
            Method::DELETE,
            &["v1", "orgs", org_slug, "dns", "zones", zone, "rrsets", name, r#type],
        )
        .header("If-Match", header.if_match.as_ref())
    }

    /// Record which DS records the parent is given
    ///
    /// `PUT /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec/ds`
    pub fn dns_report(&self, org_slug: &str, zone: &str, body: &DsReport) -> Call<Zone> {
        self.operation("dns.report", Method::PUT, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec", "ds"])
            .json(body)
    }

    /// Have the zone signed, or no longer
    ///
    /// `POST /v1/orgs/{orgSlug}/dns/zones/{zone}/dnssec`
    pub fn dns_switch(&self, org_slug: &str, zone: &str, body: &DnssecSwitch) -> Call<Zone> {
        self.operation("dns.switch", Method::POST, &["v1", "orgs", org_slug, "dns", "zones", zone, "dnssec"])
            .once()
            .json(body)
    }

    /// Claim a hostname; it is served once its ownership is proved
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_add(&self, org_slug: &str, project_name: &str, body: &NewHostname) -> Call<Hostname> {
        self.operation("hostnames.add", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
            .once()
            .json(body)
    }

    /// Give a custom hostname up
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}`
    pub fn hostnames_delete(&self, org_slug: &str, project_name: &str, host: &str) -> Call<()> {
        self.operation(
            "hostnames.delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host],
        )
    }

    /// The hostnames of a project, the default one first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/hostnames`
    pub fn hostnames_list(&self, org_slug: &str, project_name: &str) -> Call<HostnamePage> {
        self.operation("hostnames.list", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "hostnames"])
    }

    /// Look for the proof of a hostname now
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/hostnames/{host}/verify`
    pub fn hostnames_verify(&self, org_slug: &str, project_name: &str, host: &str) -> Call<Hostname> {
        self.operation(
            "hostnames.verify",
            Method::POST,
            &["v1", "orgs", org_slug, "projects", project_name, "hostnames", host, "verify"],
        )
        .once()
    }

    /// Join by an invitation
    ///
    /// `POST /v1/invites/{token}/accept`
    pub fn invites_accept(&self, token: &str) -> Call<Joined> {
        self.operation("invites.accept", Method::POST, &["v1", "invites", token, "accept"]).once()
    }

    /// Invite an address (201), or send its open invitation again (200)
    ///
    /// `POST /v1/orgs/{orgSlug}/invites`
    pub fn invites_create(&self, org_slug: &str, body: &NewInvite) -> Call<InviteCreated> {
        self.operation("invites.create", Method::POST, &["v1", "orgs", org_slug, "invites"]).once().json(body)
    }

    /// The open invitations, newest first; expired ones too
    ///
    /// `GET /v1/orgs/{orgSlug}/invites`
    pub fn invites_list(&self, org_slug: &str, query: &Paging) -> Call<InvitePage> {
        self.operation("invites.list", Method::GET, &["v1", "orgs", org_slug, "invites"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// The notifications, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/notifications`
    pub fn invites_notifications(&self, org_slug: &str, query: &Paging) -> Call<NotificationPage> {
        self.operation("invites.notifications", Method::GET, &["v1", "orgs", org_slug, "notifications"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// What an invitation is to, for whoever has its link
    ///
    /// `GET /v1/invites/{token}`
    pub fn invites_preview(&self, token: &str) -> Call<InviteView> {
        self.operation("invites.preview", Method::GET, &["v1", "invites", token])
    }

    /// Take an open invitation back
    ///
    /// `DELETE /v1/orgs/{orgSlug}/invites/{inviteId}`
    pub fn invites_revoke(&self, org_slug: &str, invite_id: &str) -> Call<()> {
        self.operation("invites.revoke", Method::DELETE, &["v1", "orgs", org_slug, "invites", invite_id])
    }

    /// The caller and the organizations they belong to
    ///
    /// `GET /v1/me`
    pub fn me_get(&self) -> Call<User> {
        self.operation("me.get", Method::GET, &["v1", "me"])
    }

    /// End one of the caller's sessions
    ///
    /// `DELETE /v1/me/sessions/{sessionId}`
    pub fn me_session_end(&self, session_id: &str) -> Call<()> {
        self.operation("me.session_end", Method::DELETE, &["v1", "me", "sessions", session_id])
    }

    /// The caller's live login sessions, newest first
    ///
    /// `GET /v1/me/sessions`
    pub fn me_sessions(&self, query: &Paging) -> Call<LoginSessionPage> {
        self.operation("me.sessions", Method::GET, &["v1", "me", "sessions"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// What happened in an organization, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/audit`
    pub fn orgs_audit(&self, org_slug: &str, query: &OrgsAuditQuery) -> Call<AuditEventPage> {
        self.operation("orgs.audit", Method::GET, &["v1", "orgs", org_slug, "audit"])
            .query("actor", query.actor.as_ref())
            .query("event", query.event.as_ref())
            .query("since", query.since.as_ref())
            .query("until", query.until.as_ref())
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Create an organization
    ///
    /// `POST /v1/orgs`
    pub fn orgs_create(&self, body: &NewOrg) -> Call<Org> {
        self.operation("orgs.create", Method::POST, &["v1", "orgs"]).once().json(body)
    }

    /// The organizations that the caller belongs to
    ///
    /// `GET /v1/orgs`
    pub fn orgs_list(&self, query: &Paging) -> Call<OrgPage> {
        self.operation("orgs.list", Method::GET, &["v1", "orgs"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Add somebody who has signed in before
    ///
    /// `POST /v1/orgs/{orgSlug}/members`
    pub fn orgs_member_add(&self, org_slug: &str, body: &NewMember) -> Call<Member> {
        self.operation("orgs.member_add", Method::POST, &["v1", "orgs", org_slug, "members"]).once().json(body)
    }

    /// Remove a member (admin), or leave (anyone)
    ///
    /// `DELETE /v1/orgs/{orgSlug}/members/{userId}`
    pub fn orgs_member_remove(&self, org_slug: &str, user_id: &str) -> Call<()> {
        self.operation("orgs.member_remove", Method::DELETE, &["v1", "orgs", org_slug, "members", user_id])
    }

    /// Change a member's role
    ///
    /// `PUT /v1/orgs/{orgSlug}/members/{userId}`
    pub fn orgs_member_set_role(&self, org_slug: &str, user_id: &str, body: &RoleChange) -> Call<Member> {
        self.operation("orgs.member_set_role", Method::PUT, &["v1", "orgs", org_slug, "members", user_id]).json(body)
    }

    /// The members
    ///
    /// `GET /v1/orgs/{orgSlug}/members`
    pub fn orgs_members(&self, org_slug: &str, query: &Paging) -> Call<MemberPage> {
        self.operation("orgs.members", Method::GET, &["v1", "orgs", org_slug, "members"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Rename an organization
    ///
    /// `PATCH /v1/orgs/{orgSlug}`
    pub fn orgs_rename(&self, org_slug: &str, body: &OrgChange) -> Call<Org> {
        self.operation("orgs.rename", Method::PATCH, &["v1", "orgs", org_slug]).json(body)
    }

    /// Create a project
    ///
    /// `POST /v1/orgs/{orgSlug}/projects`
    pub fn projects_create(&self, org_slug: &str, body: &NewProject) -> Call<Project> {
        self.operation("projects.create", Method::POST, &["v1", "orgs", org_slug, "projects"]).once().json(body)
    }

    /// Delete a project; its name and hostnames are free at once
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_delete(&self, org_slug: &str, project_name: &str, body: &ProjectDeletion) -> Call<()> {
        self.operation("projects.delete", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name])
            .json(body)
    }

    /// One project, with what it serves and where
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_get(&self, org_slug: &str, project_name: &str) -> Call<ProjectDetail> {
        self.operation("projects.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name])
    }

    /// The projects of an organization
    ///
    /// `GET /v1/orgs/{orgSlug}/projects`
    pub fn projects_list(&self, org_slug: &str, query: &Paging) -> Call<ProjectPage> {
        self.operation("projects.list", Method::GET, &["v1", "orgs", org_slug, "projects"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// The first page of a project: what serves, what happened
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/overview`
    pub fn projects_overview(&self, org_slug: &str, project_name: &str) -> Call<ProjectOverview> {
        self.operation(
            "projects.overview",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "overview"],
        )
    }

    /// Rename a project; its default hostname follows
    ///
    /// `PATCH /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_rename(&self, org_slug: &str, project_name: &str, body: &ProjectChange) -> Call<ProjectDetail> {
        self.operation("projects.rename", Method::PATCH, &["v1", "orgs", org_slug, "projects", project_name]).json(body)
    }

    /// What this deployment is called and where its parts are
    ///
    /// `GET /v1/config`
    pub fn service_config(&self) -> Call<Config> {
        self.operation("service.config", Method::GET, &["v1", "config"])
    }

    /// Whether the process is up
    ///
    /// `GET /healthz`
    pub fn service_healthz(&self) -> Call<Health> {
        self.operation("service.healthz", Method::GET, &["healthz"])
    }

    /// Whether requests can be served: the database answers and is migrated
    ///
    /// `GET /readyz`
    pub fn service_readyz(&self) -> Call<Health> {
        self.operation("service.readyz", Method::GET, &["readyz"])
    }
}
