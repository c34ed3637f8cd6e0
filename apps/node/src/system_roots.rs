//! The CA certificates of the system.

use daemon::error_chain;
use rustls::RootCertStore;

/// Returns the CA certificates of the system, or those of `SSL_CERT_FILE`. Logs those that cannot be loaded.
pub fn system_roots() -> RootCertStore {
    let loaded = rustls_native_certs::load_native_certs();
    for error in loaded.errors {
        tracing::warn!(error = error_chain(error), "failed to load certificates of the system");
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    roots
}
