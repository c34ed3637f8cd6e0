//! The public listeners of a node and of the API: plain http, and TLS.
//!
//! `files` reads the operator's certificates, and the program adds the issued ones; both are in the `store`. `handshake`
//! selects one by the server name (SNI). `connection`, `frames`, `unread_frames` and `deliveries` limit HTTP/2, which actix
//! leaves open, and `request_stream` recognizes the requests that a client resets. `unread_body` limits chunked bodies.
//! `write_timeout` and `head_timeout` close the connections of clients that do not read or write. `rejection` replaces the
//! responses of actix to malformed requests, and corrects those of the app. `listen` serves an app with these.

mod certificate;
mod clock;
mod connection;
mod deliveries;
mod files;
mod frames;
mod handshake;
mod head_timeout;
mod listen;
mod metrics;
mod rejection;
mod request_id;
mod request_stream;
mod store;
mod unread_body;
mod unread_frames;
mod write_timeout;

pub use certificate::ServedCertificate;
pub use connection::{RequestGuard, Requests};
pub use files::CertificateFiles;
pub use handshake::{Handshaker, Presented};
pub use listen::{HttpSettings, bind, serve};
pub use metrics::ListenerMetrics;
pub use request_id::sent_request_id;
pub use store::{ByName, CertificateStore};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// Returns the cryptography of all TLS connections.
#[must_use]
pub fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
