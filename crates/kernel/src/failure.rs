//! What goes wrong, as clients are told: a stable code of a kind, and a sentence for people.

use serde_json::{Value, json};

/// The kind of a failure. Contexts know kinds; only the gateway knows statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed or a value is out of bounds.
    Invalid,
    /// Nobody is signed in.
    Unauthenticated,
    /// Who is signed in may not.
    Forbidden,
    /// It is not there, or hidden.
    NotFound,
    /// The state of things forbids it; the same request will fail again.
    Conflict,
    /// It was meant for another state of things than there is.
    Precondition,
    /// It is well formed, and cannot be done all the same.
    Unprocessable,
    /// More bytes than are taken.
    TooLarge,
    /// Too many requests.
    RateLimited,
    /// Something this service needs is away; the same request may succeed later.
    Unavailable,
    /// Our fault. Clients learn nothing but the request id.
    Internal,
}

/// A stable code: what clients read.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// The machine word, such as `last_admin`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// When it is answered, in a sentence for the reference.
    pub meaning: &'static str,
}

impl Code {
    /// A code; for constants beside the errors that carry it.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { name, kind, meaning }
    }
}

/// The codes that belong to no single context.
impl Code {
    /// 400 of every malformed request.
    pub const BAD_REQUEST: Self =
        Self::new("bad_request", Kind::Invalid, "The request is malformed; `details.fields` names each fault.");
    /// 401 of every credential that opens nothing.
    pub const UNAUTHENTICATED: Self =
        Self::new("unauthenticated", Kind::Unauthenticated, "The credential is missing, unknown or no longer valid.");
    /// 403 of everything without a code of its own.
    pub const FORBIDDEN: Self = Self::new(
        "forbidden",
        Kind::Forbidden,
        "The caller's role is too low, or the caller is not of the organization.",
    );
    /// 413 of every body that is too large.
    pub const PAYLOAD_TOO_LARGE: Self =
        Self::new("payload_too_large", Kind::TooLarge, "The body is over the limit that `details.limit` tells.");
    /// 404 of everything without a code of its own.
    pub const NOT_FOUND: Self = Self::new("not_found", Kind::NotFound, "What the path names does not exist.");
    /// 503 of everything without a code of its own.
    pub const UNAVAILABLE: Self = Self::new(
        "unavailable",
        Kind::Unavailable,
        "The database is away or the server is at its capacity; try again.",
    );
    /// 500.
    pub const INTERNAL: Self = Self::new("internal", Kind::Internal, "A fault of the service; quote the request id.");
}

/// A value of the request that only a context can judge: where it stands, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request is malformed: {path}: {message}")]
pub struct Malformed {
    /// Of a field in the body: `restrict.projects[0]`.
    pub path: String,
    pub message: String,
}

impl Malformed {
    /// A fault of this field.
    pub fn new(path: impl Into<String>, message: impl ToString) -> Self {
        Self { path: path.into(), message: message.to_string() }
    }

    /// As the faults are told that break the request's schema.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ "fields": [{ "path": self.path, "message": self.message }] })
    }
}

/// An error that clients are told of. Its `Display` is the message for people; what caused it stays in `source()` and
/// reaches the log alone.
pub trait Failure: std::error::Error + Send + Sync + 'static {
    /// The stable code.
    fn code(&self) -> &'static Code;

    /// What a program needs to know beyond the code.
    fn details(&self) -> Option<Value> {
        None
    }
}
