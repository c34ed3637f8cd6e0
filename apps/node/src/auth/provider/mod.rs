//! The clients of the identity providers: OAuth 2.0 (RFC 6749) with PKCE (RFC 7636), and OpenID Connect.

mod client;
mod id_token;
mod keys;
mod profile;

pub use client::{Exchange, Provider, Providers};
pub use profile::Profile;

/// Why a provider did not confirm a sign-in. The texts are for the log, and contain no text of the provider.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// The provider does not accept the code: it was used before, or has expired.
    #[error("the provider rejected the code")]
    RejectedCode,
    /// The provider is unreachable, or its response is not the expected one.
    #[error("{0}")]
    Failed(String),
}

impl ProviderError {
    fn failed(reason: impl Into<String>) -> Self {
        Self::Failed(reason.into())
    }
}

type Result<T> = std::result::Result<T, ProviderError>;
