//! Audit events. Every operation that changes something writes one, in the same commit.

use serde_json::Value;

use crate::{ClientId, GrantId, KeyId, OrgId, Role, SessionId, TokenId, UserId};

/// The actor of an operation, with the credential and the id of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The user; `None` for an anonymous caller, an operator or the system actor.
    pub user: Option<UserId>,
    /// The credential of the request.
    pub credential: Credential,
    /// The request id, as in the response and the log.
    pub request_id: String,
    /// The idempotency claim, if the client sent a key.
    pub idempotency: Option<IdempotencyClaim>,
    /// The role that the user needs; `None` if the operation concerns no organization or needs no role.
    pub required_role: Option<RequiredRole>,
}

/// The role that a user needs in an organization. The policy checks it before the body is read, and the transaction
/// that commits the change checks it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequiredRole {
    /// The organization that the operation changes.
    pub org: OrgId,
    /// The minimum role.
    pub minimum: Role,
}

/// The claim of a request with an idempotency key. The first commit of the request marks the key as committed. A commit
/// fails if another request took over the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyClaim {
    /// The row of the claim.
    pub id: uuid::Uuid,
    /// The attempt number of this request.
    pub attempt: i32,
}

/// The credential of an actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// A login session.
    Session(SessionId),
    /// A personal access token.
    Token(TokenId),
    /// An access token of a connected app, by its grant.
    Grant(GrantId),
    /// An SSH key.
    SshKey(KeyId),
    /// A connected app that authenticated as itself at the token endpoint.
    Client(ClientId),
    /// No credential, on an endpoint for anonymous callers.
    None,
    /// A command in the operator's shell.
    Operator,
    /// The service itself: the system actor, or a commit of a saga, which names its user.
    Service,
}

impl Credential {
    /// The stored value for [`Self::None`].
    pub const NONE: &str = "none";
    /// The stored value for [`Self::Operator`].
    pub const OPERATOR: &str = "operator";
    /// The stored value for [`Self::Service`].
    pub const SERVICE: &str = "service";
}

impl std::fmt::Display for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(id) => write!(f, "{id}"),
            Self::Token(id) => write!(f, "{id}"),
            Self::Grant(id) => write!(f, "{id}"),
            Self::SshKey(id) => write!(f, "{id}"),
            Self::Client(id) => write!(f, "{id}"),
            Self::None => f.write_str(Self::NONE),
            Self::Operator => f.write_str(Self::OPERATOR),
            Self::Service => f.write_str(Self::SERVICE),
        }
    }
}

/// An audit event. It never contains a secret or a code. Only `member.invite` and `member.accept` contain a contact:
/// the invited address (specification, general conventions 5).
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The event's name, such as `member.add` (specification, "Audit events").
    pub name: &'static str,
    /// The organization whose audit log shows the event; `None` for an event of an account or of the
    /// platform.
    pub org: Option<OrgId>,
    /// The user whose account the event concerns: the user's own log shows it (contract section 3, "Audit").
    pub account: Option<UserId>,
    /// The target of the operation: an id or a name.
    pub target: String,
    /// Details for readers of the log: an object.
    pub data: Value,
}

impl Event {
    /// Creates an event of an organization, with an id or a name as its target.
    #[must_use]
    pub fn in_org(name: &'static str, org: OrgId, target: impl ToString, data: Value) -> Self {
        Self { name, org: Some(org), account: None, target: target.to_string(), data }
    }

    /// Creates an event of a user's account, which belongs to no organization.
    #[must_use]
    pub fn of_account(name: &'static str, user: UserId, target: impl ToString, data: Value) -> Self {
        Self { name, org: None, account: Some(user), target: target.to_string(), data }
    }

    /// Creates an event that only operators see.
    #[must_use]
    pub fn of_platform(name: &'static str, target: impl ToString, data: Value) -> Self {
        Self { name, org: None, account: None, target: target.to_string(), data }
    }
}

impl Actor {
    /// Creates the actor of a signed-in user's request.
    #[must_use]
    pub fn user(
        user: UserId,
        credential: Credential,
        required_role: Option<RequiredRole>,
        request_id: impl Into<String>,
    ) -> Self {
        let request_id = request_id.into();
        Self { user: Some(user), credential, request_id, idempotency: None, required_role }
    }

    /// Creates the actor of a request without a valid credential.
    #[must_use]
    pub fn anonymous(request_id: impl Into<String>) -> Self {
        Self::without_user(Credential::None, request_id)
    }

    /// Creates the system actor for a background job.
    #[must_use]
    pub fn service(job: &str) -> Self {
        Self::without_user(Credential::Service, job)
    }

    /// Creates the actor of an operator's command, which runs outside any request.
    #[must_use]
    pub fn operator(command: &str) -> Self {
        Self::without_user(Credential::Operator, command)
    }

    /// Replaces the minimum role. Has no effect on an actor without a required role.
    #[must_use]
    pub fn requiring(self, minimum: Role) -> Self {
        let required_role = self.required_role.map(|RequiredRole { org, .. }| RequiredRole { org, minimum });
        Self { required_role, ..self }
    }

    fn without_user(credential: Credential, request_id: impl Into<String>) -> Self {
        Self { user: None, credential, request_id: request_id.into(), idempotency: None, required_role: None }
    }
}
