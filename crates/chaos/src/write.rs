//! The kinds of writes: their requests, and the content that they store.

use anyhow::Result;
use kernel::Digest;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use testkit::bundle::site;

/// A kind of write. Each kind exercises a different code path of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// Writes a row and its default hostname, and updates a counter under the organization's lock.
    Project,
    /// Stores a file, then writes a row with the next version, then the live version.
    Deployment,
    /// Writes a row that only the idempotency key protects from duplicates.
    Token,
    /// Writes a row and sends a mail.
    Invite,
    /// Writes a row, a counter, a serial and a journal entry.
    Rrset,
}

impl WriteKind {
    /// All kinds, in the order in which a writer writes them.
    pub const ALL: [Self; 5] = [Self::Project, Self::Deployment, Self::Token, Self::Invite, Self::Rrset];

    const fn prefix(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Deployment => "deployment",
            Self::Token => "token",
            Self::Invite => "invite",
            Self::Rrset => "rrset",
        }
    }

    /// Returns whether this is the name of a write of this kind.
    pub fn is_name(self, name: &str) -> bool {
        name.strip_prefix(self.prefix()).is_some_and(|number| number.parse::<usize>().is_ok())
    }

    /// Returns the response field that identifies the created object.
    const fn id_field(self) -> Option<&'static str> {
        match self {
            Self::Project | Self::Token | Self::Invite => Some("id"),
            Self::Deployment => Some("version"),
            Self::Rrset => None,
        }
    }
}

/// A write. A retry sends the same idempotency key.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: WriteKind,
    pub name: String,
    number: u8,
}

impl Write {
    /// Returns the write with this number in its organization.
    pub fn new(kind: WriteKind, number: usize) -> Self {
        Self { kind, name: format!("{}{number}", kind.prefix()), number: (number % 250) as u8 }
    }

    /// Builds the request, without a credential. The name is also the idempotency key.
    pub fn request(&self, client: &Client, base: &str, org: &str) -> Result<RequestBuilder> {
        let (of_org, name) = (format!("{base}/v1/orgs/{org}"), &self.name);
        let request = match self.kind {
            WriteKind::Project => client.post(format!("{of_org}/projects")).json(&json!({ "name": name })),
            WriteKind::Deployment => client
                .post(format!("{of_org}/projects/site/deployments"))
                .header("content-type", "application/gzip")
                .header("x-svc-git-message", name)
                .body(site(name)),
            WriteKind::Token => {
                client.post(format!("{base}/v1/me/tokens")).json(&json!({ "name": name, "scopes": ["account:read"] }))
            }
            WriteKind::Invite => {
                let invite = json!({ "email": format!("{name}@{org}.example.org"), "role": "viewer" });
                client.post(format!("{of_org}/invites")).json(&invite)
            }
            WriteKind::Rrset => {
                let path = format!("{of_org}/dns/zones/{org}.example.org/rrsets/{name}/A");
                client.put(path).json(&json!({ "records": [format!("192.0.2.{}", self.number)] }))
            }
        };
        Ok(request.header("idempotency-key", name))
    }

    /// Returns the stored content other than the name.
    pub fn stored_content(&self) -> Result<Option<String>> {
        Ok(match self.kind {
            WriteKind::Project | WriteKind::Token => None,
            WriteKind::Deployment => Some(Digest::of(&site(&self.name)).to_string()),
            WriteKind::Invite => Some("viewer".to_owned()),
            WriteKind::Rrset => Some(format!("0004c00002{:02x}", self.number)),
        })
    }

    /// Returns the id of the created object, from the response.
    pub fn response_id(&self, response: &Value) -> Option<String> {
        let id = response.get(self.kind.id_field()?)?;
        Some(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
    }
}

/// The content of the `SVC_LIMITS` file for load tests. It raises the plan limits and rate limits.
pub const LOAD_TEST_LIMITS: &str = "
    [plans.free]
    projects = 1000000
    invites = 1000000
    custom_hostnames = 1000000
    pending_hostnames = 1000000
    zones = 1000000
    zone_bytes = 67108864
    mails_per_hour = 1000000
    mail_bytes = 1000000000000
    repository_bytes = 1000000000000
    bundle_bytes = 1000000000000
    ai_requests_per_minute = 1000000
    ai_spend_per_day_micro_cents = 1000000000000
    bundle = { compressed = 52428800, unpacked = 262144000, entries = 20000 }
    [rates]
    sign_in = 1000000
    credential = 1000000
    oauth_address = 1000000
    oauth_client = 1000000
    git = 1000000
    [abuse]
    tokens_per_user = 1000000
    orgs_per_user = 1000000
    invite_mails_per_org = 1000000
    invite_mails_per_user = 1000000
    idempotency_keys_per_user = 1000000000
    notification_mails_per_recipient = 1000000
    deleted_projects_per_org = 1000000
    deleted_repositories_per_org = 1000000
    deployments_per_project = 1000000
    database_restores_per_project = 1000000
    database_exports_per_project = 1000000
    database_changes_per_project = 1000000
    registrar_requests_per_org = 1000000
    [registrar]
    requests_per_second = 1000000
    requests_per_hour = 1000000
";
