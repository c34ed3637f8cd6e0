//! TLS for visitors: the node terminates it with the certificates that the control plane issues, and with the operator's
//! own files.
//!
//! The desired state lists the certificates. `keeper` fetches them and saves them sealed. The crate `tls` reads the
//! operator's files and selects a certificate for each connection. `challenge` answers the HTTP-01 challenges of
//! certification authorities.

mod challenge;
pub mod config;
mod keeper;
mod metrics;
pub mod references;

use std::sync::Arc;

use ::tls::{CertificateFiles, CertificateStore, Handshaker, crypto_provider};
use anyhow::Context as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

pub use self::challenge::{ChallengeRequest, Challenges, challenge_token};
use self::config::TlsConfig;
use self::keeper::CertificateKeeper;
pub use self::metrics::TlsMetrics;
use self::references::CertificateChanges;
use crate::cache::Cache;
use crate::client::Core;

/// TLS of a node that terminates it.
pub struct Tls {
    pub handshaker: Handshaker,
    pub store: Arc<CertificateStore>,
    /// Receives the certificates of the desired state.
    pub changes: UnboundedSender<CertificateChanges>,
}

impl Tls {
    /// Loads the saved certificates and the operator's files, and starts the tasks that follow their changes.
    ///
    /// # Errors
    /// Returns an error if the saved certificates or the operator's folder cannot be read.
    pub fn open(
        config: &TlsConfig,
        core: Core,
        cache: Arc<Cache>,
        metrics: TlsMetrics,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<Self> {
        let provider = crypto_provider();
        let store = Arc::new(CertificateStore::new(metrics.listener.clone()));
        if let Some(folder) = &config.files {
            let files = CertificateFiles::load(folder.clone(), Arc::clone(&provider), Arc::clone(&store));
            tasks.spawn(files.context("SVC_EDGE_CERTIFICATES")?.run());
        }
        let shared = (Arc::clone(&provider), Arc::clone(&store), metrics.clone());
        let keeper = CertificateKeeper::restore(core, cache, shared)?;
        let (changes, received_changes) = unbounded_channel();
        tasks.spawn(keeper.run(received_changes));
        let handshaker = Handshaker::new(provider, Arc::clone(&store), metrics.listener)?;
        Ok(Self { handshaker, store, changes })
    }
}
