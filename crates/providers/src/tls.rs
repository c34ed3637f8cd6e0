//! TLS of the outbound client.

use std::sync::Arc;

use kernel::error_chain;
use rustls::{ClientConfig, RootCertStore};
use rustls_native_certs::CertificateResult;

use crate::OutboundConfigError;

/// Returns the CA certificates of the system, or those of `SSL_CERT_FILE`.
///
/// # Errors
/// Returns [`OutboundConfigError::NoRoots`] if there is no CA certificate.
pub(crate) fn system_roots() -> Result<RootCertStore, OutboundConfigError> {
    roots(rustls_native_certs::load_native_certs())
}

fn roots(loaded: CertificateResult) -> Result<RootCertStore, OutboundConfigError> {
    for error in &loaded.errors {
        tracing::warn!(error = %error_chain(error), "failed to load certificates of the system");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
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
            assert!(matches!(roots(load_certs_from_paths(file, None)), Err(OutboundConfigError::NoRoots)), "{file:?}");
        }
    }
}
