//! SSH keys (specification, "Repositories, SSH keys, access tokens", rule 4).

use kernel::{KeyId, Time};
use serde::{Deserialize, Serialize};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey, public::KeyData};
use validator::Validate;

use super::Title;

/// The least bits of an RSA modulus (specification, "Limits"), and the most that OpenSSH takes.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=16384;

kernel::words! {
    /// The types that are taken.
    pub enum KeyType {
        Ed25519 = "ed25519",
        EcdsaP256 = "ecdsa-sha2-nistp256",
        EcdsaP384 = "ecdsa-sha2-nistp384",
        EcdsaP521 = "ecdsa-sha2-nistp521",
        /// Of 2048 bits or more.
        Rsa = "rsa",
    } example Ed25519
}

/// A key that opens the user's repositories over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(as = SSHKey))]
#[cfg_attr(
    feature = "openapi",
    schema(example = json!({
        "title": "laptop",
        "fingerprint": "SHA256:rXMfIkxeLbbJnLYpqgz3EI8YW+ilFJ0Pz36ZlxEp2Mo",
    }))
)]
pub struct SshKey {
    pub id: KeyId,
    pub title: String,
    #[serde(rename = "type")]
    pub kind: KeyType,
    /// As `ssh-keygen -l` prints it: `SHA256:…`.
    pub fingerprint: String,
    pub created_at: Time,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
}

/// The key to add.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(as = NewSSHKey))]
pub struct NewSshKey {
    pub title: Title,
    /// One line of a `.pub` file.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 8192))]
    #[cfg_attr(
        feature = "openapi",
        schema(
            example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct ada@laptop"
        )
    )]
    pub key: String,
}

/// A public key that was read and is of a type that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedKey {
    pub kind: KeyType,
    pub fingerprint: String,
    /// Type and base64, without the comment.
    pub line: String,
}

/// Why a key is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("is a private key; paste the content of the .pub file, and consider the private one known")]
    Private,
    #[error("is not one line of a .pub file: <type> <base64> <comment>")]
    Unreadable,
    #[error("is of the type {0}; taken are ed25519, ecdsa on nistp256, nistp384 or nistp521, and rsa")]
    Type(String),
    #[error("is an RSA key of {0} bits; {min} is the least, {max} the most", min = RSA_BITS.start(), max = RSA_BITS.end())]
    Bits(usize),
}

impl ParsedKey {
    /// Reads one line of a `.pub` file (RFC 4253 section 6.6, RFC 5656, RFC 8709).
    ///
    /// # Errors
    /// When it is no public key, or of a type or size that is not taken.
    pub fn read(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim();
        if text.contains("PRIVATE KEY") {
            return Err(InvalidKey::Private);
        }
        if text.contains(['\n', '\r']) {
            return Err(InvalidKey::Unreadable);
        }
        // Told before the rest is read: of a type that is not taken, only its name matters.
        let mut words = text.split_ascii_whitespace();
        let (named, base64) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if ["ssh-dss", "sk-ssh-", "sk-ecdsa-"].iter().any(|other| named.starts_with(other)) || named.contains("-cert-")
        {
            return Err(InvalidKey::Type(named.chars().take(64).collect()));
        }
        // As sshd reads it: any white space between the two, and the comment is nobody's business.
        let key = PublicKey::from_openssh(&format!("{named} {base64}")).map_err(|_| InvalidKey::Unreadable)?;
        let kind = match key.algorithm() {
            Algorithm::Ed25519 => KeyType::Ed25519,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => KeyType::EcdsaP256,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 } => KeyType::EcdsaP384,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 } => KeyType::EcdsaP521,
            Algorithm::Rsa { .. } => KeyType::Rsa,
            other => return Err(InvalidKey::Type(other.as_str().chars().take(64).collect())),
        };
        if let KeyData::Rsa(rsa) = key.key_data() {
            let modulus = rsa.n.as_positive_bytes().ok_or(InvalidKey::Unreadable)?;
            let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
            if !RSA_BITS.contains(&bits) {
                return Err(InvalidKey::Bits(bits));
            }
        }
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        let line = key.to_openssh().map_err(|_| InvalidKey::Unreadable)?;
        Ok(Self { kind, fingerprint, line: line.trim_end().to_owned() })
    }
}
