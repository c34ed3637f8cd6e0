//! Who is believed over TLS.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

/// A client that believes the system's authorities; `SSL_CERT_FILE` names others. With its provider of cryptography at
/// hand, so that none has to be installed for the whole process first.
pub(crate) fn client_config() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
