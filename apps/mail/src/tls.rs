//! The certificate for STARTTLS.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// The interval at which the files are read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(60);

/// The current certificate.
#[derive(Clone)]
pub struct Tls(watch::Receiver<TlsAcceptor>);

/// Reads the files repeatedly, because certificates are renewed.
pub struct Reload {
    files: TlsFiles,
    contents: [Vec<u8>; 2],
    acceptor: watch::Sender<TlsAcceptor>,
}

impl Tls {
    /// Reads the certificate.
    pub fn load(files: TlsFiles) -> anyhow::Result<(Self, Reload)> {
        let contents = read(&files)?;
        let (sender, acceptor) = watch::channel(acceptor(&contents)?);
        Ok((Self(acceptor), Reload { files, contents, acceptor: sender }))
    }

    /// Returns the current certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.0.borrow().clone()
    }
}

impl Reload {
    /// Reads the files at each interval. If they are invalid, the last valid certificate stays in use.
    pub async fn run(mut self) {
        loop {
            sleep(RELOAD_INTERVAL).await;
            match self.reload() {
                Ok(true) => tracing::info!("loaded a new certificate"),
                Ok(false) => {}
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "failed to load the certificate; keeping the last one");
                }
            }
        }
    }

    /// Reads the files. Returns whether they changed.
    fn reload(&mut self) -> anyhow::Result<bool> {
        let contents = read(&self.files)?;
        if contents == self.contents {
            return Ok(false);
        }
        self.acceptor.send_replace(acceptor(&contents)?);
        self.contents = contents;
        Ok(true)
    }
}

fn read(files: &TlsFiles) -> anyhow::Result<[Vec<u8>; 2]> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    Ok([read(&files.chain)?, read(&files.key)?])
}

fn acceptor([chain, key]: &[Vec<u8>; 2]) -> anyhow::Result<TlsAcceptor> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>().context("the chain is not PEM")?;
    ensure!(!chain.is_empty(), "the chain has no certificate");
    let key = PrivateKeyDer::from_pem_slice(key).context("the key is not PEM")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config =
        config.with_no_client_auth().with_single_cert(chain, key).context("the key is of another certificate")?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
