//! The saved certificates: one sealed file for each.
//!
//! The files are not synced, because the control plane has them too. After a power failure, a file may be missing or
//! damaged, which is noticed when it is opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use protocol::Certificate;

use super::{Cache, remove};
use crate::digest::Digest;

impl Cache {
    /// Reads the saved certificates. Removes the files that are damaged or sealed with another credential of the node.
    pub fn certificates(&self) -> io::Result<impl Iterator<Item = io::Result<Certificate>>> {
        let files = fs::read_dir(self.dir.join("certificates"))?;
        Ok(files.filter_map(|file| file.and_then(|file| self.certificate(&file.path())).transpose()))
    }

    fn certificate(&self, path: &Path) -> io::Result<Option<Certificate>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let opened = self.certificate_key.open(&name, &fs::read(path)?);
        let certificate = opened.and_then(|content| serde_json::from_slice(&content).ok());
        if certificate.is_none() {
            tracing::warn!("no usable saved certificate; waiting for the control plane");
            remove(path)?;
        }
        Ok(certificate)
    }

    /// Saves a certificate for the next start.
    pub fn save_certificate(&self, certificate: &Certificate) -> io::Result<()> {
        let name = file_name(&certificate.id);
        let sealed = self.certificate_key.seal(&name, serde_json::to_vec(certificate)?)?;
        self.replace_unsynced(&self.certificate_path(&name), &sealed)
    }

    /// Removes a saved certificate, if it exists.
    pub fn remove_certificate(&self, id: &str) -> io::Result<()> {
        remove(&self.certificate_path(&file_name(id)))
    }

    fn certificate_path(&self, name: &str) -> PathBuf {
        self.dir.join("certificates").join(name)
    }
}

/// Returns the name of the file of a certificate: a digest, so that any id results in a valid file name. The content is
/// sealed for this name.
fn file_name(id: &str) -> String {
    Digest::of(id.as_bytes()).hex()
}
