//! API errors: a stable code of a kind, and a message.

use std::fmt;

use serde::Serialize;
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

/// A validation error. `path` is like `records[2]` or `contact.email`; it is empty for the whole value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Fault))]
pub struct InvalidField {
    pub path: String,
    pub message: String,
}

impl InvalidField {
    /// Creates the error of a field.
    pub fn new(path: impl Into<String>, message: impl ToString) -> Self {
        Self { path: path.into(), message: message.to_string() }
    }

    /// Returns the error details.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ "fields": [self] })
    }

    /// Returns the path and the message.
    fn summary(&self) -> String {
        match self.path.as_str() {
            "" => self.message.clone(),
            path => format!("{path}: {}", self.message),
        }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request is malformed: {}", self.summary())
    }
}

impl std::error::Error for InvalidField {}

/// The invalid fields of a request; not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidFields(Vec<InvalidField>);

impl InvalidFields {
    /// The maximum number of fields that a response lists.
    pub const MAX: usize = 100;

    /// Checks that there are no invalid fields.
    ///
    /// # Errors
    /// Returns the first [`Self::MAX`] fields.
    pub fn ensure_none(mut fields: Vec<InvalidField>) -> Result<(), Self> {
        fields.truncate(Self::MAX);
        if fields.is_empty() { Ok(()) } else { Err(Self(fields)) }
    }

    /// Returns the values of two fields, or the errors of both.
    ///
    /// # Errors
    /// Returns an error if a field is invalid.
    pub fn both<A, B>(first: Result<A, impl Into<Self>>, second: Result<B, impl Into<Self>>) -> Result<(A, B), Self> {
        match (first, second) {
            (Ok(first), Ok(second)) => Ok((first, second)),
            (first, second) => {
                let errors: [Option<Self>; 2] = [first.err().map(Into::into), second.err().map(Into::into)];
                Err(Self(errors.into_iter().flatten().flat_map(|Self(fields)| fields).take(Self::MAX).collect()))
            }
        }
    }

    /// Returns the values of all fields, or the errors of the first [`Self::MAX`] invalid ones.
    ///
    /// # Errors
    /// Returns an error if a field is invalid.
    pub fn all<T>(values: impl IntoIterator<Item = Result<T, impl Into<Self>>>) -> Result<Vec<T>, Self> {
        let (mut valid, mut invalid) = (Vec::new(), Vec::new());
        for value in values {
            match value {
                Ok(value) => valid.push(value),
                Err(error) => invalid.extend(error.into().0),
            }
            if invalid.len() >= Self::MAX {
                break;
            }
        }
        Self::ensure_none(invalid).map(|()| valid)
    }

    /// Returns the paths of the fields.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|field| field.path.as_str())
    }

    /// Returns the first errors as one text.
    #[must_use]
    pub fn summary(&self) -> String {
        join_first(self.0.iter().map(InvalidField::summary))
    }

    /// Returns the error details.
    #[must_use]
    pub fn details(&self) -> Value {
        json!({ "fields": self.0 })
    }
}

impl From<InvalidField> for InvalidFields {
    fn from(field: InvalidField) -> Self {
        Self(vec![field])
    }
}

impl fmt::Display for InvalidFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the request is malformed: {}", self.summary())
    }
}

impl std::error::Error for InvalidFields {}

/// Joins the first errors into one message, which states how many more there are.
#[must_use]
pub fn join_first(errors: impl ExactSizeIterator<Item = String>) -> String {
    const MAX_SHOWN: usize = 5;
    let count = errors.len();
    let mut text = errors.take(MAX_SHOWN).collect::<Vec<_>>().join("; ");
    if count > MAX_SHOWN {
        text.push_str(&format!("; and {} more", count - MAX_SHOWN));
    }
    text
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn invalid(at: usize) -> Result<usize, InvalidField> {
        Err(InvalidField::new(format!("names[{at}]"), "is invalid"))
    }

    #[test]
    fn all_invalid_fields_are_collected() {
        assert_eq!(InvalidFields::all([Ok::<_, InvalidField>(1), Ok(2)]), Ok(vec![1, 2]));
        let error = InvalidFields::all([Ok(0), invalid(1), Ok(2), invalid(3)]).expect_err("two invalid fields");
        assert_eq!(error.to_string(), "the request is malformed: names[1]: is invalid; names[3]: is invalid");
        let both = InvalidFields::both(Err::<(), _>(error.clone()), invalid(7)).expect_err("three invalid fields");
        assert_eq!(both.paths().collect::<Vec<_>>(), ["names[1]", "names[3]", "names[7]"]);
        assert_eq!(
            InvalidFields::both(Ok::<_, InvalidField>(1), invalid(7)),
            Err(invalid(7).expect_err("invalid").into())
        );
    }

    #[test]
    fn message_and_details_are_bounded() {
        let error = InvalidFields::all((0..50_000).map(invalid)).expect_err("invalid fields");
        let shown = "names[0]: is invalid; names[1]: is invalid; names[2]: is invalid; names[3]: is invalid; \
                     names[4]: is invalid; and 95 more";
        assert_eq!(error.summary(), shown);
        assert_eq!(error.details().pointer("/fields").and_then(Value::as_array).map(Vec::len), Some(100));
    }

    #[test]
    fn error_of_the_whole_value_has_no_path() {
        let error = InvalidField::new("", "must be an object");
        assert_eq!(error.to_string(), "the request is malformed: must be an object");
        assert_eq!(InvalidFields::from(error.clone()).to_string(), error.to_string());
    }
}
