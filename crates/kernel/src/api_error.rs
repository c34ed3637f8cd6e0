//! API errors: a stable code of a kind, and a message.

use std::fmt;

use serde_json::{Value, json};

/// The kind of an error. Contexts use kinds; only the gateway maps them to HTTP statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed or a value is out of bounds.
    Invalid,
    /// The caller is not signed in.
    Unauthenticated,
    /// A payment was declined.
    PaymentRequired,
    /// The caller lacks a permission.
    Forbidden,
    /// The object does not exist, or is hidden from the caller.
    NotFound,
    /// The current state forbids the operation. The same request will fail again.
    Conflict,
    /// The request expects another state than the current one.
    Precondition,
    /// The request is well formed but cannot be executed.
    Unprocessable,
    /// The body exceeds the limit.
    TooLarge,
    /// Too many requests.
    RateLimited,
    /// The installation does not offer the feature.
    NotConfigured,
    /// A system that the service depends on answered with a failure.
    Upstream,
    /// A dependency of the service is unavailable. The same request may succeed later.
    Unavailable,
    /// An error of the service. Clients only receive the request id.
    Internal,
}

/// A stable error code, which clients evaluate.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// The name, such as `last_admin`.
    pub name: &'static str,
    /// The kind of the errors with this code.
    pub kind: Kind,
    /// The description for the reference: a sentence that states when the code is returned.
    pub meaning: &'static str,
}

impl Code {
    /// Creates a code, for a constant next to the errors that use it.
    #[must_use]
    pub const fn new(name: &'static str, kind: Kind, meaning: &'static str) -> Self {
        Self { name, kind, meaning }
    }
}

/// The codes that all contexts share.
impl Code {
    /// 400 for every malformed request.
    pub const BAD_REQUEST: Self =
        Self::new("bad_request", Kind::Invalid, "The request is malformed; `details.fields` lists the invalid fields.");
    /// 401 for every credential that is not valid.
    pub const UNAUTHENTICATED: Self =
        Self::new("unauthenticated", Kind::Unauthenticated, "The credential is missing, unknown or no longer valid.");
    /// 403 for every error without a more specific code.
    pub const FORBIDDEN: Self = Self::new(
        "forbidden",
        Kind::Forbidden,
        "The caller's role is too low, or the caller is not a member of the organization.",
    );
    /// 413 for every body that is too large.
    pub const PAYLOAD_TOO_LARGE: Self =
        Self::new("payload_too_large", Kind::TooLarge, "The body exceeds the limit in `details.limit`.");
    /// 404 for every error without a more specific code.
    pub const NOT_FOUND: Self =
        Self::new("not_found", Kind::NotFound, "The object that the path names does not exist.");
    /// 429 for every error without a more specific code.
    pub const RATE_LIMITED: Self =
        Self::new("rate_limited", Kind::RateLimited, "Too many requests; `Retry-After` states when to retry.");
    /// 503 for every error without a more specific code.
    pub const UNAVAILABLE: Self = Self::new(
        "unavailable",
        Kind::Unavailable,
        "The database or a system that the request needs is unavailable, or the server is at capacity. Try again in a \
         moment.",
    );
    /// 500 for every unexpected error.
    pub const INTERNAL: Self = Self::new(
        "internal",
        Kind::Internal,
        "The service failed unexpectedly. Quote the request id when you report it.",
    );
}

/// A field of a request that breaks a rule which the schema cannot express.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request is malformed: {path}: {message}")]
pub struct InvalidField {
    /// The path of the field in the body, such as `restrict.projects[0]`.
    pub path: String,
    pub message: String,
}

impl InvalidField {
    /// Creates the error of a field.
    pub fn new(path: impl Into<String>, message: impl ToString) -> Self {
        Self { path: path.into(), message: message.to_string() }
    }

    /// Returns the error details, in the same format as for fields that violate the schema.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ "fields": [self.detail()] })
    }

    fn detail(&self) -> Value {
        json!({ "path": self.path, "message": self.message })
    }
}

/// The fields of a request that break rules which the schema cannot express.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFields(Vec<InvalidField>);

impl InvalidFields {
    /// Returns the values of two fields, or the errors of both.
    ///
    /// # Errors
    /// Returns an error if a field is invalid.
    pub fn both<A, B>(first: Result<A, InvalidField>, second: Result<B, InvalidField>) -> Result<(A, B), Self> {
        match (first, second) {
            (Ok(first), Ok(second)) => Ok((first, second)),
            (first, second) => Err(Self(first.err().into_iter().chain(second.err()).collect())),
        }
    }

    /// Returns the error details, in the same format as for fields that violate the schema.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ "fields": self.0.iter().map(InvalidField::detail).collect::<Vec<_>>() })
    }
}

impl From<InvalidField> for InvalidFields {
    fn from(field: InvalidField) -> Self {
        Self(vec![field])
    }
}

impl fmt::Display for InvalidFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self.0.iter().map(|field| format!("{}: {}", field.path, field.message)).collect();
        write!(f, "the request is malformed: {}", fields.join("; "))
    }
}

impl std::error::Error for InvalidFields {}

/// An error that the API returns to clients. Its `Display` is the message; its cause stays in `source()` and only
/// reaches the log.
pub trait ApiError: std::error::Error + Send + Sync + 'static {
    /// Returns the stable code.
    fn code(&self) -> &'static Code;

    /// Returns machine-readable details in addition to the code.
    fn details(&self) -> Option<Value> {
        None
    }

    /// Returns the seconds after which the same request may succeed, for the header `Retry-After`.
    fn retry_after(&self) -> Option<i64> {
        None
    }
}
