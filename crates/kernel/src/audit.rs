//! The audit event: what is written, in the same commit, for every operation that changed something.

use serde_json::Value;

use crate::{OrgId, SessionId, TokenId, UserId};

/// Who did it, under which request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The user; none for a node, a webhook or the service itself.
    pub user: Option<UserId>,
    /// With what.
    pub credential: Credential,
    /// The request id, as in the answer and in the log.
    pub request_id: String,
    /// What the request may do at most once, when its client asked for that.
    pub once: Option<Once>,
}

/// A request that came with an idempotency key: its first commit notes that it was carried out, and one whose place
/// another request has taken can commit nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Once {
    /// Where that is noted.
    pub id: uuid::Uuid,
    /// Which attempt at the request this is.
    pub attempt: i32,
}

/// With what an actor acted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// A login session.
    Session(SessionId),
    /// A personal access token.
    Token(TokenId),
    /// Nothing: an open endpoint.
    None,
    /// The operator's shell.
    Operator,
    /// The service itself: a pass that runs by the clock.
    Service,
}

impl Credential {
    /// The stored word for [`Self::None`].
    pub const NONE: &str = "none";
    /// The stored word for [`Self::Operator`].
    pub const OPERATOR: &str = "operator";
    /// The stored word for [`Self::Service`].
    pub const SERVICE: &str = "service";
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(id) => write!(f, "{id}"),
            Self::Token(id) => write!(f, "{id}"),
            Self::None => f.write_str(Self::NONE),
            Self::Operator => f.write_str(Self::OPERATOR),
            Self::Service => f.write_str(Self::SERVICE),
        }
    }
}

/// What happened. Never holds a secret, a code or a contact (specification, general conventions 5).
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event's name, such as `member.add` (specification, "Audit events").
    pub name: &'static str,
    /// The organization in whose log it is shown; none for what concerns an account alone.
    pub org: Option<OrgId>,
    /// What it was done to: an id or a name.
    pub target: String,
    /// What a reader of the log wants to know beyond that: an object.
    pub data: Value,
}

impl Event {
    /// What happened in an organization, to an id or a name.
    #[must_use]
    pub fn in_org(name: &'static str, org: OrgId, target: impl ToString, data: Value) -> Self {
        Self { name, org: Some(org), target: target.to_string(), data }
    }
}

impl Actor {
    /// The service itself, in one of its passes.
    #[must_use]
    pub fn service(pass: &str) -> Self {
        Self { user: None, credential: Credential::Service, request_id: pass.to_owned(), once: None }
    }

    /// The operator at the machine itself, outside any request.
    #[must_use]
    pub fn operator(command: &str) -> Self {
        Self { user: None, credential: Credential::Operator, request_id: command.to_owned(), once: None }
    }
}
