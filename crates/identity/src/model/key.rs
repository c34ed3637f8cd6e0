//! SSH keys (specification, "Repositories, SSH keys, access tokens", rule 4).

use kernel::{KeyId, Time};
use serde::{Deserialize, Serialize};
use ssh_key::public::{EcdsaPublicKey, KeyData};
use ssh_key::{Algorithm, EcdsaCurve, HashAlg, PublicKey};
use validator::Validate;

use super::Title;
use super::curve::is_on_curve;

/// The allowed bits of an RSA modulus: the minimum of the specification ("Limits") and the maximum of OpenSSH.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=16384;

kernel::words! {
    /// A supported key type.
    pub enum KeyType {
        Ed25519 = "ed25519",
        EcdsaP256 = "ecdsa-sha2-nistp256",
        EcdsaP384 = "ecdsa-sha2-nistp384",
        EcdsaP521 = "ecdsa-sha2-nistp521",
        /// 2048 bits or more.
        Rsa = "rsa",
    } example Ed25519
}

/// An SSH key that gives access to the user's repositories.
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
    /// The fingerprint as `ssh-keygen -l` prints it: `SHA256:…`.
    pub fingerprint: String,
    pub created_at: Time,
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_used_at: Option<Time>,
}

/// An SSH key to add.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", schema(as = NewSSHKey))]
pub struct NewSshKey {
    pub title: Title,
    /// One line of a `.pub` file.
    #[cfg_attr(feature = "openapi", schema(format = "ssh-public-key", min_length = 1, max_length = 8192))]
    #[cfg_attr(
        feature = "openapi",
        schema(
            example = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct ada@laptop"
        )
    )]
    pub key: String,
}

/// A parsed public key of a supported type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedKey {
    pub kind: KeyType,
    pub fingerprint: String,
    /// The type and the base64 data, without the comment.
    pub public_key: String,
}

/// The reason why a key is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("is a private key; paste the content of the .pub file, and replace this key because it is exposed now")]
    Private,
    #[error("is not one line of a .pub file: <type> <base64> <comment>")]
    Unreadable,
    #[error("is of type {0}; supported types are ed25519, ecdsa (nistp256, nistp384, nistp521) and rsa")]
    Type(String),
    #[error("is an RSA key of {0} bits; use {min} to {max} bits", min = RSA_BITS.start(), max = RSA_BITS.end())]
    Bits(usize),
    #[error("is not a point on the curve of its type; paste the content of the .pub file again")]
    Point,
}

impl ParsedKey {
    /// Parses one line of a `.pub` file (RFC 4253 section 6.6, RFC 5656, RFC 8709).
    ///
    /// # Errors
    /// Returns [`InvalidKey`] if the text is not a public key of a supported type and size.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim();
        if text.contains("PRIVATE KEY") {
            return Err(InvalidKey::Private);
        }
        if text.contains(['\n', '\r']) {
            return Err(InvalidKey::Unreadable);
        }
        // An unsupported type is reported by name, even if the rest of the line is malformed.
        let mut words = text.split_ascii_whitespace();
        let (name, base64) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if ["ssh-dss", "sk-ssh-", "sk-ecdsa-"].iter().any(|prefix| name.starts_with(prefix)) || name.contains("-cert-")
        {
            return Err(InvalidKey::Type(name.chars().take(64).collect()));
        }
        // Like sshd, accept any white space after the type, and ignore the comment.
        let key = PublicKey::from_openssh(&format!("{name} {base64}")).map_err(|_| InvalidKey::Unreadable)?;
        let kind = match key.algorithm() {
            Algorithm::Ed25519 => KeyType::Ed25519,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => KeyType::EcdsaP256,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 } => KeyType::EcdsaP384,
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 } => KeyType::EcdsaP521,
            Algorithm::Rsa { .. } => KeyType::Rsa,
            other => return Err(InvalidKey::Type(other.as_str().chars().take(64).collect())),
        };
        if let KeyData::Ecdsa(ecdsa) = key.key_data()
            && !has_valid_point(ecdsa)
        {
            return Err(InvalidKey::Point);
        }
        if let KeyData::Rsa(rsa) = key.key_data() {
            let modulus = rsa.n.as_positive_bytes().ok_or(InvalidKey::Unreadable)?;
            let bits = modulus.first().map_or(0, |first| modulus.len() * 8 - first.leading_zeros() as usize);
            if !RSA_BITS.contains(&bits) {
                return Err(InvalidKey::Bits(bits));
            }
        }
        let fingerprint = key.fingerprint(HashAlg::Sha256).to_string();
        let line = key.to_openssh().map_err(|_| InvalidKey::Unreadable)?;
        Ok(Self { kind, fingerprint, public_key: line.trim_end().to_owned() })
    }
}

/// Returns whether the key is an uncompressed point on its curve (RFC 5656 section 3.1). OpenSSH rejects compressed
/// points.
fn has_valid_point(key: &EcdsaPublicKey) -> bool {
    let Some((4, coordinates)) = key.as_sec1_bytes().split_first() else { return false };
    let (x, y) = coordinates.split_at(coordinates.len() / 2);
    is_on_curve(key.curve(), x, y)
}
