//! DKIM signatures (RFC 6376, RFC 8463).

use std::sync::Arc;

use mail_auth::common::crypto::{DkimKey, Ed25519Key, RsaKey, Sha256};
use mail_auth::common::headers::HeaderWriter as _;
use mail_auth::dkim::Done;
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

/// The signed headers (RFC 6376 section 5.4.1). A header that the mail does not have is also listed, so that no
/// server can add it.
const SIGNED_HEADERS: [&str; 11] = [
    "From",
    "Reply-To",
    "To",
    "Cc",
    "Subject",
    "Date",
    "Message-ID",
    "In-Reply-To",
    "References",
    "MIME-Version",
    "Content-Type",
];

/// Signs outgoing mail with the platform's key. Cheap to clone.
#[derive(Clone)]
pub struct DkimSigner(Arc<mail_auth::dkim::DkimSigner<DkimKey, Done>>);

/// A key that cannot sign.
#[derive(Debug, thiserror::Error)]
#[error("must be a PEM file with an RSA or Ed25519 private key (PKCS #8, or PKCS #1 for RSA)")]
pub struct InvalidDkimKey;

impl DkimSigner {
    /// Creates a signer with a private key in PEM. The public key must be published at
    /// `<selector>._domainkey.<domain>`. The domain is the parent of the senders' domains, so that one record is enough
    /// for all projects. DMARC's relaxed alignment accepts such a signature (RFC 7489 section 3.1.1).
    ///
    /// # Errors
    /// Returns an error if the text is not a private key, or the algorithm is not supported.
    pub fn new(pem: &str, domain: &str, selector: &str) -> Result<Self, InvalidDkimKey> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| InvalidDkimKey)?;
        let ed25519 = match &key {
            PrivateKeyDer::Pkcs8(der) => Ed25519Key::from_pkcs8_maybe_unchecked_der(der.secret_pkcs8_der()).ok(),
            _ => None,
        };
        let key = match ed25519 {
            Some(key) => DkimKey::from(key),
            None => RsaKey::<Sha256>::from_key_der(key).map_err(|_| InvalidDkimKey)?.into(),
        };
        let signer = mail_auth::dkim::DkimSigner::from_key(key).domain(domain).selector(selector);
        Ok(Self(Arc::new(signer.headers(SIGNED_HEADERS))))
    }

    /// Returns the message with a signature in front of it.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, mail_auth::Error> {
        let header = self.0.sign(message)?.to_header();
        Ok([header.as_bytes(), message].concat())
    }
}

impl std::fmt::Debug for DkimSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DkimSigner(…)")
    }
}
