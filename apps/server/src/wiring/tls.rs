//! TLS of the public listener: its certificates, which are the operator's files and the one that the platform issues for
//! the hostname of the API.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::tls::{CertificateFiles, CertificateStore, Handshaker, ListenerMetrics, ServedCertificate, crypto_provider};
use anyhow::{Context as _, ensure};
use certificates::{ApiCertificate, CertificateError, CertificateReference, Certificates, IssuedCertificate};
use kernel::CertificateId;
use prometheus::Registry;

use crate::config::Config;
use crate::jobs::{Background, Job};

/// The interval at which the server looks for a renewed certificate.
const LOAD_INTERVAL: Duration = Duration::from_secs(5);

/// Returns the handshakes of the TLS listener, if there is one.
pub(super) fn wire(
    config: &Config,
    certificates: &Certificates,
    registry: &Registry,
    background: &mut Background,
) -> anyhow::Result<Option<Handshaker>> {
    let Some(tls) = &config.tls else { return Ok(None) };
    let metrics = ListenerMetrics::new("svc_tls", registry)?;
    let store = Arc::new(CertificateStore::new(metrics.clone()));
    if let Some(folder) = &tls.files {
        let files = CertificateFiles::load(folder.clone(), crypto_provider(), Arc::clone(&store));
        background.task(files.context("SVC_TLS_CERTIFICATES")?.run());
        // The reason is in the log. With certificate authorities, the certificate is issued later.
        ensure!(
            !config.acme.is_empty() || store.find(&tls.hostname).is_some(),
            "SVC_TLS_CERTIFICATES: the folder {} has no usable certificate for {}",
            folder.display(),
            tls.hostname
        );
    }
    let issued = Issued { certificates: certificates.clone(), store: Arc::clone(&store), held: Arc::default() };
    background.job(Job::every(LOAD_INTERVAL, "certificates.load_api").without_clock(), issued, async |issued| {
        issued.load().await
    });
    Ok(Some(Handshaker::new(crypto_provider(), store, metrics)?))
}

/// The issued certificate of the API. All servers read it from Postgres.
#[derive(Clone)]
struct Issued {
    certificates: Certificates,
    store: Arc<CertificateStore>,
    held: Arc<Mutex<Held>>,
}

#[derive(Clone, Default)]
struct Held {
    /// The certificate that was read last.
    id: Option<CertificateId>,
    /// The name of the certificate in the store.
    name: Option<String>,
}

impl Issued {
    /// Puts the current certificate into the store. The last one stays until another one is issued.
    async fn load(&self) -> Result<(), CertificateError> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let issued = self.certificates.api_certificate(held.id).await?;
        let Some(ApiCertificate::New(issued)) = issued else { return Ok(()) };
        let IssuedCertificate { reference: CertificateReference { id, name, .. }, chain, key } = issued;
        let (chain, key) = (chain.as_bytes(), key.reveal().as_bytes());
        match ServedCertificate::parse(&name, chain, key, &crypto_provider()) {
            Ok(certificate) => {
                tracing::info!(hostname = name, certificate = %id, "certificate of the API is in use");
                self.store.insert([(name.clone(), certificate)]);
                // The wildcard may have replaced the certificate of the hostname, whose expiry would raise an alert.
                self.store.remove(held.name.iter().filter(|former| **former != name));
                held.name = Some(name);
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(hostname = name, certificate = %id, error, "the certificate of the API is unusable");
            }
        }
        held.id = Some(id);
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        Ok(())
    }
}
