//! The part `certificates`, the certificates that it refers to, and the responses to ACME challenges.

use serde::{Deserialize, Serialize};

use crate::desired::DesiredPart;
use crate::secrets::SecretValue;

/// The certificates of a project's hostnames. The context `certificates` owns this part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Certificates {
    /// One certificate for each hostname that has one.
    pub certificates: Vec<CertificateReference>,
}

impl DesiredPart for Certificates {
    const NAME: &'static str = "certificates";
}

/// A reference to a certificate, which the node fetches by its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CertificateReference {
    /// an id that starts with crt_. The content of a certificate never changes.
    #[cfg_attr(feature = "openapi", schema(pattern = "^crt_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The hostname, lowercase, or a wildcard such as `*.example.org`, which matches exactly one label.
    pub name: String,
    /// The expiry (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub not_after: String,
}

/// A certificate with its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// an id that starts with crt_
    #[cfg_attr(feature = "openapi", schema(pattern = "^crt_[0-7][0-9a-hjkmnp-tv-z]{25}$"))]
    pub id: String,
    /// The hostname or the wildcard.
    pub name: String,
    /// The chain in PEM, the certificate of the name first.
    pub chain: String,
    /// The private key: PKCS #8 in PEM. Keep it only in memory or in sealed form.
    pub key: SecretValue,
    /// The expiry (RFC 3339).
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub not_after: String,
}

/// The response to an HTTP-01 challenge (RFC 8555 section 8.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChallengeResponse {
    /// The body of the response.
    pub key_authorization: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_key() {
        let key = SecretValue::new("hush".to_owned());
        let (id, name, chain) = ("crt_1".to_owned(), "www.example.org".to_owned(), String::new());
        let certificate = Certificate { id, name, chain, key, not_after: String::new() };
        assert!(!format!("{certificate:?}").contains("hush"));
    }
}
