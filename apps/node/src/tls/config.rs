//! The configuration of the TLS listener.

use std::net::SocketAddr;
use std::path::PathBuf;

/// The configuration of the TLS listener.
#[derive(Debug, Clone)]
pub struct TlsConfig {
    /// The address that the front listens on.
    pub listen: SocketAddr,
    /// The folder with the operator's certificates.
    pub files: Option<PathBuf>,
}
