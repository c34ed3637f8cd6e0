//! One write, of one of several kinds: what is sent, and what it leaves.

use anyhow::Result;
use kernel::Digest;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use testkit::bundle::site;

/// What is written. Each takes another way through the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A row and its default hostname, counted under the organization's lock.
    Project,
    /// A file, then a row with the next number, then the live pointer.
    Deployment,
    /// What nothing but the idempotency key keeps from being there twice.
    Token,
    /// A row and a mail.
    Invite,
    /// A row, a counter, a serial and the journal's entry.
    Rrset,
}

impl Kind {
    /// All of them, in the order in which a writer writes them.
    pub const ALL: [Self; 5] = [Self::Project, Self::Deployment, Self::Token, Self::Invite, Self::Rrset];

    const fn word(self) -> &'static str {
        match self {
            Self::Project => "project",
            Self::Deployment => "deployment",
            Self::Token => "token",
            Self::Invite => "invite",
            Self::Rrset => "rrset",
        }
    }

    /// Whether a writer calls something of this kind so.
    pub fn names(self, name: &str) -> bool {
        name.strip_prefix(self.word()).is_some_and(|number| number.parse::<usize>().is_ok())
    }

    /// Where the answer names what was made.
    const fn id(self) -> Option<&'static str> {
        match self {
            Self::Project | Self::Token | Self::Invite => Some("id"),
            Self::Deployment => Some("version"),
            Self::Rrset => None,
        }
    }
}

/// A write. Sent again, it is the same write.
#[derive(Debug, Clone)]
pub struct Write {
    pub kind: Kind,
    pub name: String,
    number: u8,
}

impl Write {
    /// The `number`th of an organization.
    pub fn new(kind: Kind, number: usize) -> Self {
        Self { kind, name: format!("{}{number}", kind.word()), number: (number % 250) as u8 }
    }

    /// As it is sent, without a credential. Its name is also its idempotency key.
    pub fn request(&self, client: &Client, base: &str, org: &str) -> Result<RequestBuilder> {
        let (of_org, name) = (format!("{base}/v1/orgs/{org}"), &self.name);
        let request = match self.kind {
            Kind::Project => client.post(format!("{of_org}/projects")).json(&json!({ "name": name })),
            Kind::Deployment => client
                .post(format!("{of_org}/projects/site/deployments"))
                .header("content-type", "application/gzip")
                .header("x-svc-git-message", name)
                .body(site(name)),
            Kind::Token => {
                client.post(format!("{base}/v1/me/tokens")).json(&json!({ "name": name, "scopes": ["account:read"] }))
            }
            Kind::Invite => {
                let invite = json!({ "email": format!("{name}@{org}.example.org"), "role": "viewer" });
                client.post(format!("{of_org}/invites")).json(&invite)
            }
            Kind::Rrset => {
                let path = format!("{of_org}/dns/zones/{org}.example.org/rrsets/{name}/A");
                client.put(path).json(&json!({ "records": [format!("192.0.2.{}", self.number)] }))
            }
        };
        Ok(request.header("idempotency-key", name))
    }

    /// What the row holds besides the name.
    pub fn content(&self) -> Result<Option<String>> {
        Ok(match self.kind {
            Kind::Project | Kind::Token => None,
            Kind::Deployment => Some(Digest::of(&site(&self.name)).to_string()),
            Kind::Invite => Some("viewer".to_owned()),
            Kind::Rrset => Some(format!("0004c00002{:02x}", self.number)),
        })
    }

    /// What the answer says was made.
    pub fn id(&self, answer: &Value) -> Option<String> {
        let id = answer.get(self.kind.id()?)?;
        Some(id.as_str().map_or_else(|| id.to_string(), str::to_owned))
    }
}

/// What `SVC_LIMITS` names where somebody measures: they may have and ask more than anybody else.
pub const LIMITS: &str = "
    [plans.free]
    projects = 1000000
    invites = 1000000
    bundle = { compressed = 52428800, unpacked = 262144000, entries = 20000 }
    [rates]
    sign_in = 1000000
    credential = 1000000
";
