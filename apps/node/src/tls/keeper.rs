//! Fetches the certificates that the control plane lists, and saves them for the next start.
//!
//! A certificate is presented until the one that replaces it is fetched, or until no reference names it. An expired
//! certificate is presented too: renewal is the work of the control plane.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ::tls::{CertificateStore, ServedCertificate};
use anyhow::{Context as _, ensure};
use daemon::Backoff;
use futures_util::FutureExt as _;
use protocol::{Certificate, CertificateReference};
use rustls::crypto::CryptoProvider;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{AbortHandle, JoinError, JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::metrics::TlsMetrics;
use super::references::{CertificateChanges, References};
use crate::cache::Cache;
use crate::client::Core;

const MAX_CONCURRENT_FETCHES: usize = 8;
/// The longest delay before a certificate is fetched again.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);

/// The task that holds the issued certificates of the store.
pub struct CertificateKeeper {
    fetcher: Fetcher,
    store: Arc<CertificateStore>,
    metrics: TlsMetrics,
    references: References,
    /// The id of the certificate that is presented for each name.
    held: HashMap<String, String>,
    fetches: JoinSet<Fetched>,
    /// The fetches in progress, by the id of the certificate.
    fetching: HashMap<String, AbortHandle>,
    /// The listed certificates that the control plane does not provide. It has replaced them, and lists others soon.
    gone: HashSet<String>,
}

#[derive(Clone)]
struct Fetcher {
    core: Core,
    cache: Arc<Cache>,
    provider: Arc<CryptoProvider>,
    permits: Arc<Semaphore>,
}

struct Fetched {
    reference: CertificateReference,
    /// `None` if the control plane does not provide it.
    certificate: Option<ServedCertificate>,
}

impl CertificateKeeper {
    /// Puts the saved certificates into the store.
    ///
    /// # Errors
    /// Returns an error if the folder of the saved certificates cannot be read. An unreadable or damaged file is skipped.
    pub fn restore(
        core: Core,
        cache: Arc<Cache>,
        (provider, store, metrics): (Arc<CryptoProvider>, Arc<CertificateStore>, TlsMetrics),
    ) -> anyhow::Result<Self> {
        let mut newest: HashMap<String, (CertificateReference, ServedCertificate)> = HashMap::new();
        for saved in cache.certificates()? {
            let Certificate { id, name, chain, key, not_after } = match saved {
                Ok(saved) => saved,
                Err(error) => {
                    tracing::error!(%error, "failed to read a saved certificate; waiting for the control plane");
                    continue;
                }
            };
            let parsed = ServedCertificate::parse(&name, chain.as_bytes(), key.reveal().as_bytes(), &provider);
            let surplus = match parsed {
                // A crash may leave the file of a replaced certificate.
                Ok(_) if newest.get(&name).is_some_and(|(newest, _)| newest.not_after >= not_after) => Some(id),
                Ok(certificate) => {
                    let reference = CertificateReference { id, name: name.clone(), not_after };
                    newest.insert(name, (reference, certificate)).map(|(older, _)| older.id)
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(hostname = name, certificate = id, error, "a saved certificate is unusable");
                    Some(id)
                }
            };
            if let Some(Err(error)) = surplus.map(|id| cache.remove_certificate(&id)) {
                tracing::error!(%error, "failed to remove a saved certificate");
            }
        }
        let held = newest.iter().map(|(name, (reference, _))| (name.clone(), reference.id.clone())).collect();
        store.insert(newest.into_iter().map(|(name, (_, certificate))| (name, certificate)));
        let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_FETCHES));
        Ok(Self {
            fetcher: Fetcher { core, cache, provider, permits },
            store,
            metrics,
            references: References::default(),
            held,
            fetches: JoinSet::new(),
            fetching: HashMap::new(),
            gone: HashSet::new(),
        })
    }

    /// Follows the references until the sender of the changes is dropped.
    pub async fn run(mut self, mut changes: UnboundedReceiver<CertificateChanges>) {
        loop {
            tokio::select! {
                Some(changes) = changes.recv() => self.apply(changes).await,
                Some(fetched) = self.fetches.join_next() => self.on_fetched(fetched).await,
                else => return,
            }
            self.metrics.set_missing(self.fetching.len() + self.gone.len());
        }
    }

    async fn apply(&mut self, changes: CertificateChanges) {
        if changes.is_full {
            self.gone.clear();
        }
        self.references.apply(changes);
        let desired = self.references.by_name();
        let ids: HashSet<&str> = desired.values().map(|reference| reference.id.as_str()).collect();
        self.gone.retain(|id| ids.contains(id.as_str()));
        self.fetching.retain(|id, task| {
            let is_desired = ids.contains(id.as_str());
            if !is_desired {
                task.abort();
            }
            is_desired
        });
        for reference in desired.values() {
            let is_held = self.held.get(&reference.name) == Some(&reference.id);
            if !is_held && !self.gone.contains(&reference.id) && !self.fetching.contains_key(&reference.id) {
                let task = self.fetches.spawn(self.fetcher.clone().fetch((*reference).clone()));
                self.fetching.insert(reference.id.clone(), task);
            }
        }
        if self.references.is_complete() {
            let surplus: HashMap<String, String> =
                self.held.extract_if(|name, _| !desired.contains_key(name.as_str())).collect();
            self.store.remove(surplus.keys());
            self.fetcher.remove_saved(surplus.into_values().collect()).await;
        }
    }

    async fn on_fetched(&mut self, fetched: Result<Fetched, JoinError>) {
        // Only an aborted fetch, which is no longer needed, ends without a result.
        let Ok(Fetched { reference: CertificateReference { id, name, .. }, certificate }) = fetched else { return };
        let is_desired = self.fetching.remove(&id).is_some();
        let unneeded = match certificate {
            Some(certificate) if is_desired => {
                tracing::info!(hostname = name, certificate = id, "certificate is in use");
                self.store.insert([(name.clone(), certificate)]);
                self.held.insert(name, id)
            }
            Some(_) => Some(id),
            None if is_desired => {
                tracing::warn!(hostname = name, certificate = id, "the control plane does not provide a certificate");
                self.gone.insert(id);
                None
            }
            None => None,
        };
        self.fetcher.remove_saved(unneeded.into_iter().collect()).await;
    }
}

impl Fetcher {
    /// Fetches and saves a certificate. Retries until the control plane provides a valid one or does not know it.
    async fn fetch(self, reference: CertificateReference) -> Fetched {
        let certificate = retry(&reference, || self.attempt(&reference)).await;
        Fetched { reference, certificate }
    }

    async fn attempt(&self, reference: &CertificateReference) -> anyhow::Result<Option<ServedCertificate>> {
        let _permit = self.permits.acquire().await?;
        let Some(certificate) = self.core.certificate(&reference.id).await? else { return Ok(None) };
        let is_same = certificate.id == reference.id && certificate.name == reference.name;
        ensure!(is_same, "received {} of {} instead", certificate.id, certificate.name);
        let (cache, provider) = (Arc::clone(&self.cache), Arc::clone(&self.provider));
        let parse = move || {
            let (chain, key) = (certificate.chain.as_bytes(), certificate.key.reveal().as_bytes());
            let parsed = ServedCertificate::parse(&certificate.name, chain, key, &provider)?;
            cache.save_certificate(&certificate).context("cannot save the certificate")?;
            anyhow::Ok(parsed)
        };
        Ok(Some(spawn_blocking(parse).await??))
    }

    /// Removes the files of certificates that are no longer needed.
    async fn remove_saved(&self, ids: Vec<String>) {
        if ids.is_empty() {
            return;
        }
        let cache = Arc::clone(&self.cache);
        let remove = move || ids.iter().try_for_each(|id| cache.remove_certificate(id));
        if let Err(error) = spawn_blocking(remove).await.map_err(Into::into).flatten() {
            // The next start removes them.
            tracing::error!(%error, "failed to remove a saved certificate");
        }
    }
}

/// Repeats the attempt to fetch a certificate until it succeeds, even after a panic.
async fn retry<T, F>(reference: &CertificateReference, attempt: impl Fn() -> F) -> T
where
    F: Future<Output = anyhow::Result<T>>,
{
    let (hostname, certificate) = (&reference.name, &reference.id);
    let mut backoff = Backoff::up_to(MAX_RETRY_DELAY);
    loop {
        match AssertUnwindSafe(attempt()).catch_unwind().await {
            Ok(Ok(value)) => return value,
            Ok(Err(error)) => {
                let error = format!("{error:#}");
                tracing::warn!(hostname, certificate, error, "failed to fetch a certificate; retrying");
            }
            // The process has printed the message of the panic.
            Err(_) => tracing::error!(hostname, certificate, "the fetch of a certificate panicked; retrying"),
        }
        sleep(backoff.next_delay()).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::bail;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn fetch_is_repeated_after_a_panic_and_after_an_error() {
        let (id, name) = ("crt_1".to_owned(), "a.example".to_owned());
        let reference = CertificateReference { id, name, not_after: "2027-01-01T00:00:00.000Z".to_owned() };
        let (attempts, start) = (Cell::new(0), Instant::now());
        let fetched = retry(&reference, || async {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                1 => panic!("on purpose"),
                2 => bail!("unavailable"),
                attempt => Ok(attempt),
            }
        });
        assert_eq!(fetched.await, 3);
        // At least half of the first two delays.
        assert!(start.elapsed() >= Duration::from_millis(150), "{:?}", start.elapsed());
    }
}
