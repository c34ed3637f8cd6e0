//! TLS of the outbound client.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// Returns a TLS configuration that trusts the system's CAs, or those of `SSL_CERT_FILE`. It includes the crypto
/// provider, so that the process need not install one.
pub(crate) fn client_config() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
