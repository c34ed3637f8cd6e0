//! Sealing of the environments that the node saves: AES-256-GCM with a key that is derived from the node's credential.
//!
//! The key is never saved. With another credential, the saved environments are unusable.

use std::io;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::random;

/// Separates this key from other keys that may be derived from the credential.
const PURPOSE: &[u8] = b"svc-node: saved environments";

/// The key of one node.
pub struct SealingKey(LessSafeKey);

impl SealingKey {
    /// Derives the key from the credential with HKDF (RFC 5869).
    pub fn derive(credential: &[u8]) -> io::Result<Self> {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(credential);
        let key = secret.expand(&[PURPOSE], &AES_256_GCM).map(UnboundKey::from).map_err(io::Error::other)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a content for a project: the nonce, and the encrypted content with its tag.
    pub fn seal(&self, project: &str, mut content: Vec<u8>) -> io::Result<Vec<u8>> {
        let nonce = random::bytes::<NONCE_LEN>()?;
        let data = Aad::from(project.as_bytes());
        let sealed = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(sealed, data, &mut content).map_err(io::Error::other)?;
        Ok([&nonce[..], &content].concat())
    }

    /// Opens a sealed content. Returns `None` if it was sealed with another credential or for another project.
    pub fn open(&self, project: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, content) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut content = content.to_vec();
        let opened = |content: &mut Vec<u8>| -> Result<usize, Unspecified> {
            let nonce = Nonce::assume_unique_for_key(*nonce);
            Ok(self.0.open_in_place(nonce, Aad::from(project.as_bytes()), content)?.len())
        };
        let length = opened(&mut content).ok()?;
        content.truncate(length);
        Some(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_opens_only_with_the_same_credential_and_project() {
        let key = SealingKey::derive(b"credential").unwrap();
        let sealed = key.seal("a", b"content".to_vec()).unwrap();
        assert_eq!(SealingKey::derive(b"credential").unwrap().open("a", &sealed).unwrap(), b"content");
        assert!(key.open("b", &sealed).is_none());
        assert!(SealingKey::derive(b"another").unwrap().open("a", &sealed).is_none());
        assert_ne!(key.seal("a", b"content".to_vec()).unwrap(), sealed);
        assert!(!sealed.windows(7).any(|window| window == b"content"));
        for (at, _) in sealed.iter().enumerate() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(key.open("a", &damaged).is_none());
            assert!(key.open("a", &sealed[..at]).is_none());
        }
    }
}
