//! The errors of the client.

use kernel::error_chain;

/// The reason why a client cannot be created. Contains no address.
#[derive(Debug, thiserror::Error)]
pub enum OutboundConfigError {
    /// An address is neither http nor https.
    #[error("an address is neither http nor https")]
    Scheme,
    /// An address contains credentials, which must be in their own settings.
    #[error("an address contains a user or a password")]
    Userinfo,
    /// An address is https, but the system has no CA certificates.
    #[error("no CA certificate to verify https servers with; install the system's or set SSL_CERT_FILE")]
    NoRoots,
    /// An additional CA certificate is not a certificate.
    #[error("the additional CA certificate is not a PEM certificate")]
    Ca,
    /// The HTTP library could not be set up.
    #[error("failed to create the HTTP client: {0}")]
    Client(String),
}

/// An error of a call. Contains no address, credential or body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutboundError {
    /// The origin is not allowed. Nothing was sent.
    #[error("the origin is not configured")]
    NotAllowed,
    /// The connection failed or broke, or its certificate is not trusted.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// The call took longer than [`Limits::timeout`](super::Limits::timeout).
    #[error("timed out")]
    Timeout,
    /// The status is neither a success nor a redirect.
    #[error("responded with status {0}")]
    Status(u16),
    /// The response is a redirect, which is not followed.
    #[error("responded with a redirect, status {0}")]
    Redirect(u16),
    /// The body is larger than [`Limits::max_body_bytes`](super::Limits::max_body_bytes).
    #[error("the response is too large")]
    TooLarge,
    /// The body is not JSON of the expected type.
    #[error("the response is not the expected JSON")]
    NotJson,
}

pub(super) fn request_error(error: reqwest::Error) -> OutboundError {
    if error.is_timeout() {
        OutboundError::Timeout
    } else {
        OutboundError::Unreachable(error_chain(&error.without_url()).to_string())
    }
}
