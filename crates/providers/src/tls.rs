//! TLS of the outbound client.

use std::sync::{Arc, OnceLock};

use kernel::error_chain;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;

use crate::OutboundConfigError;

/// The CA certificates of the system, once they were loaded. There are more than a hundred, and a server has a client for
/// each provider.
static SYSTEM: OnceLock<RootCertStore> = OnceLock::new();

/// Returns the CA certificates of the system, or those of `SSL_CERT_FILE`, and those in `additional`, a PEM text.
///
/// # Errors
/// Returns [`OutboundConfigError::NoRoots`] if there is no CA certificate, and [`OutboundConfigError::Ca`] if
/// `additional` contains none or an invalid one.
pub(crate) fn roots(additional: Option<&str>) -> Result<RootCertStore, OutboundConfigError> {
    let system = SYSTEM.get().cloned().unwrap_or_else(|| {
        let loaded = collect(rustls_native_certs::load_native_certs());
        // An empty store is not kept, so the next client loads them again.
        if loaded.is_empty() { loaded } else { SYSTEM.get_or_init(|| loaded).clone() }
    });
    add(system, additional)
}

/// Checks a PEM text of additional certificate authorities.
///
/// # Errors
/// Returns [`OutboundConfigError::Ca`] if it contains no certificate or an invalid one.
pub fn check_ca(pem: &str) -> Result<(), OutboundConfigError> {
    add(RootCertStore::empty(), Some(pem)).map(drop)
}

fn collect(loaded: CertificateResult) -> RootCertStore {
    for error in &loaded.errors {
        tracing::warn!(error = %error_chain(error), "failed to load certificates of the system");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    roots
}

fn add(mut roots: RootCertStore, additional: Option<&str>) -> Result<RootCertStore, OutboundConfigError> {
    if let Some(pem) = additional {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        let certificates = certificates.ok().filter(|found| !found.is_empty()).ok_or(OutboundConfigError::Ca)?;
        for certificate in certificates {
            roots.add(certificate).map_err(|_| OutboundConfigError::Ca)?;
        }
    }
    if roots.is_empty() { Err(OutboundConfigError::NoRoots) } else { Ok(roots) }
}

/// Returns a TLS configuration that trusts these CAs. The configuration includes the crypto provider, so the process
/// need not install one.
pub(crate) fn client_config(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustls_native_certs::load_certs_from_paths;

    use super::*;

    #[test]
    fn system_without_certificates_is_rejected() {
        for file in [None, Some(Path::new("/nonexistent")), Some(Path::new("/dev/null"))] {
            let roots = |additional| add(collect(load_certs_from_paths(file, None)), additional);
            assert!(matches!(roots(None), Err(OutboundConfigError::NoRoots)), "{file:?}");
            for malformed in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
                assert!(matches!(roots(Some(malformed)), Err(OutboundConfigError::Ca)), "{malformed:?}");
            }
        }
    }
}
