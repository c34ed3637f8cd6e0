//! The RSA key of the sandbox.

use std::sync::LazyLock;

use ring::digest::{SHA256, digest};
use rsa::pkcs8::DecodePrivateKey as _;
use rsa::traits::PublicKeyParts as _;
use rsa::{Pkcs1v15Sign, RsaPrivateKey};

/// This key is public. ring cannot generate RSA keys.
pub(crate) const PEM: &str = include_str!("../keys/rsa.key");

static PRIVATE_KEY: LazyLock<RsaPrivateKey> = LazyLock::new(|| RsaPrivateKey::from_pkcs8_pem(PEM).unwrap());

/// The beginning of a signed value with SHA-256: the algorithm in DER (RFC 8017 section 9.2, note 1).
const SHA256_PREFIX: [u8; 19] = *b"\x30\x31\x30\x0d\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01\x05\x00\x04\x20";

/// Signs a digest with RSASSA-PKCS1-v1_5. `prefix` states its algorithm.
pub(crate) fn sign_digest(prefix: &[u8], digest: &[u8]) -> Vec<u8> {
    let padding = Pkcs1v15Sign { hash_len: Some(digest.len()), prefix: prefix.into() };
    PRIVATE_KEY.sign(padding, digest).unwrap()
}

/// Signs a text with RSASSA-PKCS1-v1_5 and SHA-256.
pub(crate) fn sign_sha256(text: &[u8]) -> Vec<u8> {
    sign_digest(&SHA256_PREFIX, digest(&SHA256, text).as_ref())
}

/// Returns the modulus and the exponent of the public key, as big-endian bytes.
pub(crate) fn public_key() -> (Box<[u8]>, Box<[u8]>) {
    (PRIVATE_KEY.n_bytes(), PRIVATE_KEY.e_bytes())
}
