//! The keys of users, and the key of the server.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use daemon::if_exists;
use russh::keys::PublicKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::keys::ssh_key::{Algorithm, LineEnding, PrivateKey};

use crate::random;

/// The minimum length of an RSA modulus, in bits (specification, "SSH keys").
const MIN_RSA_BITS: usize = 2048;

/// Returns whether a key may authenticate, by its type, its length and the algorithm of its signature.
pub(super) fn is_acceptable(key: &PublicKey, algorithm: &Algorithm) -> bool {
    match algorithm {
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => true,
        Algorithm::Rsa { hash: Some(_) } => key.key_data().rsa().is_some_and(|rsa| {
            let bits = rsa.n().as_positive_bytes().map_or(0, |bytes| {
                let leading = bytes.first().map_or(0, |first| first.leading_zeros() as usize);
                bytes.len() * 8 - leading
            });
            bits >= MIN_RSA_BITS
        }),
        _ => false,
    }
}

/// Reads the host key, or creates it.
pub(super) fn host_key_at(path: &Path) -> anyhow::Result<PrivateKey> {
    if let Some(text) = if_exists(fs::read_to_string(path))? {
        return Ok(PrivateKey::from_openssh(text)?);
    }
    let key = PrivateKey::from(Ed25519Keypair::from_seed(&random::bytes()?));
    // Only the owner can read a temporary file.
    let mut file = tempfile::NamedTempFile::new_in(path.parent().context("the key has a directory")?)?;
    file.write_all(key.to_openssh(LineEnding::LF)?.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(key)
}
