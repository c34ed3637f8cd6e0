//! The certificates that the TLS listener presents, by name.

use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::iter;
use std::sync::{Arc, PoisonError, RwLock};

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
    files: Source,
    /// Those from the control plane.
    issued: Source,
}

/// The certificates of a source.
#[derive(Debug, Default)]
struct Source {
    by_name: ByName,
    /// The times of expiry, with the names. With these, a change does not have to read all certificates.
    expiries: BTreeSet<(i64, String)>,
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
        let sources = [&certificates.files, &certificates.issued].into_iter().map(|source| &source.by_name);
        let mut candidates = sources.filter(|source| !source.is_empty()).flat_map(|source| {
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
        let mut source = Source::default();
        source.extend(files);
        self.change(|certificates| certificates.files = source);
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
            let earliest = held.expiries.first().map(|(expires_at, _)| *expires_at);
            self.metrics.set_held(source, held.by_name.len(), earliest);
        }
    }
}

impl Source {
    /// Adds certificates, or replaces those of their names.
    fn extend(&mut self, certificates: impl IntoIterator<Item = (String, Arc<ServedCertificate>)>) {
        for (name, certificate) in certificates {
            self.remove(&name);
            self.expiries.insert((certificate.expires_at, name.clone()));
            self.by_name.insert(name, certificate);
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some((name, certificate)) = self.by_name.remove_entry(name) {
            self.expiries.remove(&(certificate.expires_at, name));
        }
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

    #[test]
    fn metrics_follow_replaced_and_removed_certificates() {
        let registry = Registry::new();
        let store = CertificateStore::new(ListenerMetrics::new("test", &registry).unwrap());
        let metrics = |source: &str| {
            let mut values = registry.gather().into_iter().flat_map(|family| {
                let of_source = family.get_metric().iter().filter(|it| it.get_label()[0].value() == source);
                of_source.map(|it| it.get_gauge().get_value()).collect::<Vec<_>>()
            });
            (values.next(), values.next())
        };
        store.insert([served("a.example.org", 10), served("b.example.org", 20)]);
        assert_eq!(metrics("issued"), (Some(2.0), Some(10.0)));
        store.insert([served("a.example.org", 30)]);
        assert_eq!(metrics("issued"), (Some(2.0), Some(20.0)));
        store.remove([&"b.example.org".to_owned(), &"c.example.org".to_owned()]);
        assert_eq!(metrics("issued"), (Some(1.0), Some(30.0)));
        store.remove([&"a.example.org".to_owned()]);
        assert_eq!((metrics("issued"), metrics("files")), ((Some(0.0), None), (Some(0.0), None)));
        let (name, certificate) = served("a.example.org", 40);
        store.set_files(ByName::from([(name, Arc::new(certificate))]));
        assert_eq!(metrics("files"), (Some(1.0), Some(40.0)));
        store.set_files(ByName::new());
        assert_eq!(metrics("files"), (Some(0.0), None));
    }
}
