//! DKIM signatures (RFC 6376, RFC 8463).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mail_auth::common::crypto::{Algorithm, DkimKey, Ed25519Key, RsaKey, Sha256, SigningKey};
use mail_auth::common::headers::{HeaderWriter as _, Writable};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

/// The signed headers (RFC 6376 section 5.4.1). A signature lists each of them twice, also those that the mail does not
/// have. So it does not match a mail to which someone adds one of them: clients often show the first header with a name,
/// but signatures cover the last one (RFC 6376 section 8.15). Receivers offer to unsubscribe with one click only if the
/// signature covers `List-Unsubscribe` and `List-Unsubscribe-Post` (RFC 8058 section 4). `Date` and `Message-ID` are
/// not signed, because relays such as Amazon SES replace them.
const SIGNED_HEADERS: [&str; 18] = [
    "From",
    "Reply-To",
    "To",
    "Cc",
    "Subject",
    "In-Reply-To",
    "References",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
    "List-Id",
    "List-Help",
    "List-Unsubscribe",
    "List-Unsubscribe-Post",
    "List-Subscribe",
    "List-Post",
    "List-Owner",
    "List-Archive",
];

/// Signs outgoing mail with the platform's key. Cheap to clone.
#[derive(Clone)]
pub struct DkimSigner {
    key: Arc<DkimKey>,
    selector: String,
}

/// The library's signer owns its key.
struct BorrowedKey<'a>(&'a DkimKey);

impl SigningKey for BorrowedKey<'_> {
    type Hasher = Sha256;

    fn sign(&self, input: impl Writable) -> mail_auth::Result<Vec<u8>> {
        self.0.sign(input)
    }

    fn algorithm(&self) -> Algorithm {
        self.0.algorithm()
    }
}

/// The key is malformed, or its algorithm is not supported.
#[derive(Debug, thiserror::Error)]
#[error("must be a PEM file with an RSA or Ed25519 private key (PKCS #8, or PKCS #1 for RSA)")]
pub struct InvalidDkimKey;

enum PrivateKey {
    Ed25519(Ed25519Key),
    Rsa(RsaKey<Sha256>),
}

impl PrivateKey {
    fn parse(pem: &str) -> Result<Self, InvalidDkimKey> {
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| InvalidDkimKey)?;
        let ed25519 = match &key {
            PrivateKeyDer::Pkcs8(der) => Ed25519Key::from_pkcs8_maybe_unchecked_der(der.secret_pkcs8_der()).ok(),
            _ => None,
        };
        match ed25519 {
            Some(key) => Ok(Self::Ed25519(key)),
            None => RsaKey::from_key_der(key).map(Self::Rsa).map_err(|_| InvalidDkimKey),
        }
    }
}

/// Returns the TXT record with the public key of a private key in PEM (RFC 6376 section 3.6.1, RFC 8463 section 4).
///
/// # Errors
/// Returns the same error as [`DkimSigner::new`].
pub fn dkim_record(pem: &str) -> Result<String, InvalidDkimKey> {
    let (kind, key) = match PrivateKey::parse(pem)? {
        PrivateKey::Ed25519(key) => ("ed25519", key.public_key()),
        PrivateKey::Rsa(key) => ("rsa", rsa_public_key_info(&key.public_key())),
    };
    Ok(format!("v=DKIM1; k={kind}; p={}", STANDARD.encode(key)))
}

/// Returns the SubjectPublicKeyInfo (RFC 5280 section 4.1.2.7) of an RSAPublicKey, because verifiers expect this
/// structure in the TXT record.
fn rsa_public_key_info(public_key: &[u8]) -> Vec<u8> {
    /// The algorithm `rsaEncryption`, with the parameter NULL.
    const ALGORITHM: [u8; 15] = *b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
    let bits = der(0x03, &[&[0], public_key].concat());
    der(0x30, &[ALGORITHM.as_slice(), &bits].concat())
}

/// Returns the DER encoding of a value with this tag.
fn der(tag: u8, value: &[u8]) -> Vec<u8> {
    let length: Vec<u8> = value.len().to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    let header = match length.as_slice() {
        [] => vec![tag, 0],
        [short @ 0..=127] => vec![tag, *short],
        // The length has at most 8 bytes.
        long => [&[tag, 0x80 | u8::try_from(long.len()).unwrap_or_default()], long].concat(),
    };
    [header, value.to_vec()].concat()
}

impl DkimSigner {
    /// Creates a signer with a private key in PEM. The public key must be published at
    /// `<selector>._domainkey.<domain>` for each domain that is the parent of projects' mail domains.
    ///
    /// # Errors
    /// Returns an error if the text is not a private key, or the algorithm is not supported.
    pub fn new(pem: &str, selector: &str) -> Result<Self, InvalidDkimKey> {
        let key = match PrivateKey::parse(pem)? {
            PrivateKey::Ed25519(key) => DkimKey::from(key),
            PrivateKey::Rsa(key) => key.into(),
        };
        Ok(Self { key: Arc::new(key), selector: selector.to_owned() })
    }

    /// Returns the message of the project with this mail domain, `<project>.<org>.<parent>`, with a signature in front
    /// of it. The signature names the parent, so one record is enough for all projects. DMARC's relaxed alignment
    /// accepts a signature of the parent domain (RFC 7489 section 3.1.1).
    pub(crate) fn sign(&self, project_domain: &str, message: &[u8]) -> mail_auth::Result<Vec<u8>> {
        let parent = project_domain.splitn(3, '.').last().unwrap_or(project_domain);
        let signer = mail_auth::dkim::DkimSigner::from_key(BorrowedKey(&self.key)).domain(parent);
        let signer = signer.selector(&self.selector).headers(SIGNED_HEADERS.into_iter().chain(SIGNED_HEADERS));
        let header = signer.sign(message)?.to_header();
        Ok([header.as_bytes(), message].concat())
    }
}

impl std::fmt::Debug for DkimSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DkimSigner(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_contain_the_public_key() {
        let pem = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIOKfbRaoPKF87Wn9COlSaXTt1Soj6eUQwZGsIvIdUFPj\n\
                   -----END PRIVATE KEY-----\n";
        let record = dkim_record(pem).unwrap();
        assert_eq!(record, "v=DKIM1; k=ed25519; p=sU5J/U1Vs2Hg7cOMqwdFMq5TBs4ap1ofIf/TPHOmul4=");
        assert!(dkim_record("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n").is_err());
    }

    #[test]
    fn rsa_keys_have_their_algorithm() {
        // The bytes at the start of every key of 2048 bits.
        let key = [7; 270];
        let info = STANDARD.encode(rsa_public_key_info(&key));
        assert_eq!(info, ["MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A", &STANDARD.encode(key)].concat());
        assert_eq!([der(4, &[1]), der(4, &[])], [vec![4, 1, 1], vec![4, 0]]);
        assert_eq!(der(4, &[0; 200]).get(..3), Some([4, 0x81, 200].as_slice()));
    }
}
