//! A certificate that the TLS listener presents.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_cert::der::Decode as _;

/// The longest chain. Clients reject longer ones.
const MAX_CHAIN: usize = 10;
/// Replaces the `*` of a wildcard when the certificate's names are checked.
const ANY_LABEL: &str = "svc-any-label";

/// A certificate with its key.
#[derive(Debug)]
pub struct ServedCertificate {
    /// The chain and the private key. `Debug` does not show the key.
    pub key: Arc<CertifiedKey>,
    /// When it expires, in seconds since the Unix epoch.
    pub expires_at: i64,
}

impl ServedCertificate {
    /// Parses a chain and a private key, both as PEM. `name` is a hostname, or `*.` and a domain.
    ///
    /// # Errors
    /// Returns an error if the content is malformed, or if the key or the name is of another certificate. The error
    /// does not contain the key.
    pub fn parse(name: &str, chain: &[u8], key: &[u8], provider: &CryptoProvider) -> anyhow::Result<Self> {
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().context("the chain is not PEM")?;
        ensure!(chain.len() <= MAX_CHAIN, "the chain has more than {MAX_CHAIN} certificates");
        let leaf = chain.first().context("the chain has no certificate")?;
        verify_name(name, leaf).with_context(|| format!("the certificate is not valid for {name}"))?;
        let expires_at = expires_at(leaf).context("the validity of the certificate is malformed")?;
        let key = PrivateKeyDer::from_pem_slice(key).ok().context("the private key is not PEM")?;
        let key = CertifiedKey::from_der(chain, key, provider).context("the private key cannot be used")?;
        Ok(Self { key: Arc::new(key), expires_at })
    }

    /// Returns whether the certificate is valid for a hostname.
    pub fn is_valid_for(&self, hostname: &str) -> bool {
        self.key.cert.first().is_some_and(|leaf| verify_name(hostname, leaf).is_ok())
    }
}

/// Presents the certificate to every client. The handshake selects it beforehand.
impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.key))
    }
}

/// Checks that the certificate is valid for the name (RFC 9525).
fn verify_name(name: &str, leaf: &CertificateDer<'_>) -> anyhow::Result<()> {
    let name = name.strip_prefix("*.").map_or_else(|| name.to_owned(), |domain| format!("{ANY_LABEL}.{domain}"));
    verify_server_name(&ParsedCertificate::try_from(leaf)?, &ServerName::try_from(name)?)?;
    Ok(())
}

fn expires_at(leaf: &CertificateDer<'_>) -> anyhow::Result<i64> {
    let certificate = x509_cert::Certificate::from_der(leaf)?;
    Ok(certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs().try_into()?)
}
