//! The certificates that the TLS listener presents, by name.

use std::cell::LazyCell;
use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificate::ServedCertificate;
use crate::clock::now;
use crate::metrics::ListenerMetrics;

/// The certificates by name: a hostname in lowercase, or `*.` and a domain.
pub type ByName = HashMap<String, Arc<ServedCertificate>>;

/// The certificates. A change affects only later handshakes.
#[derive(Debug)]
pub struct CertificateStore {
    certificates: RwLock<Sources>,
    metrics: ListenerMetrics,
}

#[derive(Debug, Default)]
struct Sources {
    /// The operator's own. They come before the issued ones, even if these have the more specific name.
    files: ByName,
    /// Those from the control plane.
    issued: ByName,
}

impl CertificateStore {
    /// Creates a store without certificates.
    #[must_use]
    pub fn new(metrics: ListenerMetrics) -> Self {
        Self { certificates: RwLock::default(), metrics }
    }

    /// Returns whether there is a certificate for a hostname that has not expired.
    pub fn contains_unexpired(&self, hostname: &str) -> bool {
        self.find(hostname).is_some_and(|certificate| certificate.expires_at > now())
    }

    /// Returns the certificate for a hostname in lowercase: that of the exact name, otherwise the wildcard one label
    /// above. An expired certificate is returned only if all are expired.
    pub fn find(&self, hostname: &str) -> Option<Arc<ServedCertificate>> {
        let certificates = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        let wildcard = &LazyCell::new(|| hostname.split_once('.').map(|(_, domain)| format!("*.{domain}")));
        let sources = [&certificates.files, &certificates.issued].into_iter().filter(|source| !source.is_empty());
        let mut candidates = sources.flat_map(|source| {
            let exact = iter::once_with(move || source.get(hostname));
            exact.chain(iter::once_with(move || source.get(wildcard.as_deref()?))).flatten()
        });
        let (first, now) = (candidates.next()?, now());
        let is_unexpired = |certificate: &&Arc<ServedCertificate>| certificate.expires_at > now;
        let found = if is_unexpired(&first) { first } else { candidates.find(is_unexpired).unwrap_or(first) };
        Some(Arc::clone(found))
    }

    /// Replaces the operator's certificates.
    pub fn set_files(&self, files: ByName) {
        self.change(|certificates| certificates.files = files);
    }

    /// Adds issued certificates, or replaces those of their names.
    pub fn insert(&self, issued: impl IntoIterator<Item = (String, ServedCertificate)>) {
        let issued = issued.into_iter().map(|(name, certificate)| (name, Arc::new(certificate)));
        self.change(|certificates| certificates.issued.extend(issued));
    }

    /// Removes the issued certificates of these names.
    pub fn remove<'a>(&self, names: impl IntoIterator<Item = &'a String>) {
        self.change(|certificates| {
            for name in names {
                certificates.issued.remove(name);
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Sources)) {
        change(&mut self.certificates.write().unwrap_or_else(PoisonError::into_inner));
        let certificates = self.certificates.read().unwrap_or_else(PoisonError::into_inner);
        for (source, held) in [("files", &certificates.files), ("issued", &certificates.issued)] {
            let earliest = held.values().map(|certificate| certificate.expires_at).min();
            self.metrics.set_held(source, held.len(), earliest);
        }
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.find(client_hello.server_name()?)?.key))
    }
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;
    use sandbox::Certificate;

    use super::*;

    fn served(name: &str, expires_at: i64) -> (String, ServedCertificate) {
        let certificate = Certificate::generate_for(&[name]);
        let provider = rustls::crypto::ring::default_provider();
        let (chain, key) = (certificate.chain(), certificate.key());
        let served = ServedCertificate::parse(name, chain.as_bytes(), key.as_bytes(), &provider).unwrap();
        (name.to_owned(), ServedCertificate { expires_at, ..served })
    }

    #[test]
    fn unexpired_certificates_come_before_expired_ones() {
        let store = CertificateStore::new(ListenerMetrics::new("test", &Registry::new()).unwrap());
        let expires_at = |hostname| store.find(hostname).map(|certificate| certificate.expires_at);
        let of_files = |expires_at| {
            let (name, certificate) = served("a.example.org", expires_at);
            store.set_files(ByName::from([(name, Arc::new(certificate))]));
        };
        let later = now() + 3600;
        assert_eq!(expires_at("a.example.org"), None);
        of_files(1);
        assert_eq!((expires_at("a.example.org"), store.contains_unexpired("a.example.org")), (Some(1), false));
        store.insert([served("a.example.org", 2)]);
        assert_eq!(expires_at("a.example.org"), Some(1));
        store.insert([served("*.example.org", later)]);
        assert_eq!((expires_at("a.example.org"), store.contains_unexpired("a.example.org")), (Some(later), true));
        store.insert([served("a.example.org", later + 1)]);
        assert_eq!(expires_at("a.example.org"), Some(later + 1));
        of_files(later + 2);
        assert_eq!(expires_at("a.example.org"), Some(later + 2));
    }
}
