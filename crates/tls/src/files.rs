//! The operator's own certificates: files in a folder.
//!
//! `<name>.crt` contains the chain and `<name>.key` the private key; or `<name>.pem` contains both. `name` is a hostname,
//! or `_.` and a domain for a wildcard, such as `_.example.org` for `*.example.org`.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use rustls::crypto::CryptoProvider;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::certificate::ServedCertificate;
use crate::store::{ByName, CertificateStore};

/// The interval at which the folder is listed.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// The folder with the operator's certificates.
pub struct CertificateFiles {
    folder: PathBuf,
    provider: Arc<CryptoProvider>,
    store: Arc<CertificateStore>,
    /// The files at the last reload.
    listed: Listing,
    certificates: ByName,
}

/// The relevant files by the name of the certificate.
type Listing = BTreeMap<String, Files>;

/// The files of one name, by their extension.
type Files = BTreeMap<Extension, Version>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Extension {
    Crt,
    Key,
    Pem,
}

/// Another version of a file differs in at least one of these.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    path: PathBuf,
    /// `None` if the metadata cannot be read.
    metadata: Option<VersionMetadata>,
}

#[derive(Debug, PartialEq, Eq)]
struct VersionMetadata {
    modified_at: SystemTime,
    /// When the content or the metadata changed, in seconds and nanoseconds since the Unix epoch. Unlike the modification
    /// time, a program cannot set it.
    changed_at: (i64, i64),
    size: u64,
}

impl VersionMetadata {
    fn of(metadata: &fs::Metadata) -> io::Result<Self> {
        let changed_at = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { modified_at: metadata.modified()?, changed_at, size: metadata.len() })
    }
}

impl CertificateFiles {
    /// Reads the folder, and puts the certificates into the store.
    ///
    /// # Errors
    /// Returns an error if the folder cannot be read. A file that is not a valid certificate is logged and skipped.
    pub fn load(folder: PathBuf, provider: Arc<CryptoProvider>, store: Arc<CertificateStore>) -> anyhow::Result<Self> {
        let mut files = Self { folder, provider, store, listed: Listing::new(), certificates: ByName::new() };
        files.reload().with_context(|| format!("cannot read the folder {}", files.folder.display()))?;
        Ok(files)
    }

    /// Reads changed files at each interval.
    pub async fn run(mut self) {
        loop {
            sleep(RELOAD_INTERVAL).await;
            let reload = move || {
                let reloaded = self.reload();
                (self, reloaded)
            };
            match spawn_blocking(reload).await {
                Ok((files, reloaded)) => {
                    if let Err(error) = reloaded {
                        tracing::error!(%error, "failed to read the folder of certificates; keeping the last ones");
                    }
                    self = files;
                }
                // The caller notices that the task ended.
                Err(error) => return tracing::error!(%error, "the task of the certificate files failed"),
            }
        }
    }

    /// Reads the files that changed, and those that could not be read. If a certificate is now invalid, its last valid
    /// version stays.
    fn reload(&mut self) -> io::Result<()> {
        let mut listing = list(&self.folder)?;
        if listing == self.listed {
            return Ok(());
        }
        let mut certificates = HashMap::new();
        listing.retain(|name, files| {
            let before = self.certificates.remove(name);
            let is_same = self.listed.get(name) == Some(files);
            let (certificate, is_read) = if is_same { (before, true) } else { self.parse(name, files, before) };
            certificates.extend(certificate.map(|certificate| (name.clone(), certificate)));
            is_read
        });
        self.store.set_files(certificates.clone());
        (self.listed, self.certificates) = (listing, certificates);
        Ok(())
    }

    /// Returns the certificate of the files, or the one `before` if they are unusable. Returns also whether the files
    /// could be read.
    fn parse(
        &self,
        name: &str,
        files: &Files,
        before: Option<Arc<ServedCertificate>>,
    ) -> (Option<Arc<ServedCertificate>>, bool) {
        match parse(name, files, &self.provider) {
            Ok(certificate) => {
                tracing::info!(hostname = name, "certificate of a file is in use");
                (Some(Arc::new(certificate)), true)
            }
            Err(error) => {
                let is_read = !error.is::<io::Error>();
                let error = format!("{error:#}");
                tracing::error!(hostname = name, error, "a certificate file is unusable; skipping it");
                (before, is_read)
            }
        }
    }
}

fn parse(name: &str, files: &Files, provider: &CryptoProvider) -> anyhow::Result<ServedCertificate> {
    let file = |extension| files.get(&extension).map(|version| version.path.as_path());
    let (chain, key) = match (file(Extension::Crt), file(Extension::Key), file(Extension::Pem)) {
        (Some(chain), Some(key), None) => (chain, key),
        (None, None, Some(both)) => (both, both),
        (_, _, Some(_)) => bail!("there is a .pem file and a .crt or .key file"),
        (Some(_), None, None) => bail!("the .key file is missing"),
        (None, _, None) => bail!("the .crt file is missing"),
    };
    let read = |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    ServedCertificate::parse(name, &read(chain)?, &read(key)?, provider)
}

/// Lists the certificate files. Other files are ignored.
fn list(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        let extension = match path.extension().and_then(|extension| extension.to_str()) {
            Some("crt") => Extension::Crt,
            Some("key") => Extension::Key,
            Some("pem") => Extension::Pem,
            _ => continue,
        };
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
        let name = name.to_ascii_lowercase();
        let name = name.strip_prefix("_.").map_or_else(|| name.clone(), |domain| format!("*.{domain}"));
        // Follows links, with which tools such as certbot switch to another version.
        let metadata = match fs::metadata(&path) {
            // The file was removed after it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Ok(metadata) if metadata.is_dir() => continue,
            // The file is reported when it is read.
            metadata => metadata.and_then(|metadata| VersionMetadata::of(&metadata)).ok(),
        };
        let version = Version { path, metadata };
        listing.entry(name).or_default().insert(extension, version);
    }
    Ok(listing)
}
