//! Termination of TLS for the visitors of a node and for the clients of the API.
//!
//! `files` reads the operator's certificates, and the program adds the issued ones; both are in the `store`. `handshake`
//! selects one by the server name (SNI). `connection` and `frames` limit HTTP/2, which actix leaves open. `listen` combines
//! these into the service of a listener.

mod certificate;
mod clock;
mod connection;
mod files;
mod frames;
mod handshake;
mod listen;
mod metrics;
mod store;

pub use certificate::ServedCertificate;
pub use connection::{RequestGuard, Requests, TlsConnection};
pub use files::CertificateFiles;
pub use handshake::{Accepted, HandshakeFailed, Handshaker, Presented};
pub use listen::{Connection, bind, terminate};
pub use metrics::ListenerMetrics;
pub use store::{ByName, CertificateStore};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the cryptography of all TLS connections.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
