//! Sealing of contents that leave the process: AES-256-GCM. A key is derived from the node's credential, or random.
//!
//! A derived key is never saved. With another credential, the contents are unusable.

use std::io;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::error::Unspecified;
use ring::hkdf::{HKDF_SHA256, Salt};

use crate::random;

/// The purpose of a derived key. It separates the keys that are derived from the credential.
#[derive(Clone, Copy)]
pub enum Purpose {
    SavedEnvironments,
    SavedCertificates,
    /// The cookies of sign-ins in progress.
    SignInFlows,
}

/// A key of one node, or of one process.
pub struct SealingKey(LessSafeKey);

impl Purpose {
    const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::SavedEnvironments => b"svc-node: saved environments",
            Self::SavedCertificates => b"svc-node: saved certificates",
            Self::SignInFlows => b"svc-node: sign-in flows",
        }
    }
}

impl SealingKey {
    /// Derives the key from the credential with HKDF (RFC 5869).
    pub fn derive(credential: &[u8], purpose: Purpose) -> io::Result<Self> {
        let secret = Salt::new(HKDF_SHA256, &[]).extract(credential);
        let purpose = [purpose.as_bytes()];
        let key = secret.expand(&purpose, &AES_256_GCM).map(UnboundKey::from).map_err(io::Error::other)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Creates a random key, which only this process knows.
    pub fn random() -> io::Result<Self> {
        let key = UnboundKey::new(&AES_256_GCM, &random::bytes::<32>()?).map_err(io::Error::other)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a content for a `scope`, such as the id of a project: the nonce, and the encrypted content with its tag.
    pub fn seal(&self, scope: &str, mut content: Vec<u8>) -> io::Result<Vec<u8>> {
        let nonce = random::bytes::<NONCE_LEN>()?;
        let data = Aad::from(scope.as_bytes());
        let sealed = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(sealed, data, &mut content).map_err(io::Error::other)?;
        Ok([&nonce[..], &content].concat())
    }

    /// Opens a sealed content. Returns `None` if it was sealed with another credential or for another scope.
    pub fn open(&self, scope: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, content) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut content = content.to_vec();
        let opened = |content: &mut Vec<u8>| -> Result<usize, Unspecified> {
            let nonce = Nonce::assume_unique_for_key(*nonce);
            Ok(self.0.open_in_place(nonce, Aad::from(scope.as_bytes()), content)?.len())
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
    fn content_opens_only_with_the_same_credential_and_scope() {
        let derive = |credential: &[u8]| SealingKey::derive(credential, Purpose::SavedEnvironments).unwrap();
        let key = derive(b"credential");
        let sealed = key.seal("a", b"content".to_vec()).unwrap();
        assert_eq!(derive(b"credential").open("a", &sealed).unwrap(), b"content");
        assert!(key.open("b", &sealed).is_none());
        assert!(derive(b"another").open("a", &sealed).is_none());
        assert!(SealingKey::derive(b"credential", Purpose::SignInFlows).unwrap().open("a", &sealed).is_none());
        assert!(SealingKey::random().unwrap().open("a", &sealed).is_none());
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
