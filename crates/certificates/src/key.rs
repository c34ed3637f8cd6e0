//! Private keys, certificate signing requests and the fields of certificates.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::DateTime;
use kernel::{Secret, Time};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{AuthorityKeyIdentifier, SubjectAltName};
use x509_cert::time::Time as X509Time;

/// A certificate that cannot be used, or a failure of the cryptography.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidCertificate(String);

impl InvalidCertificate {
    fn new(reason: impl ToString) -> Self {
        Self(reason.to_string())
    }
}

/// The fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) not_before: Time,
    pub(crate) not_after: Time,
    /// The identifier for renewal information (RFC 9773 section 4.1).
    pub(crate) renewal_id: Option<String>,
}

/// Creates a private key (ECDSA P-256), as PEM (PKCS #8).
pub(crate) fn generate() -> Result<Secret, InvalidCertificate> {
    Ok(Secret::new(KeyPair::generate().map_err(InvalidCertificate::new)?.serialize_pem()))
}

/// Returns the certificate signing request for a name, as DER.
pub(crate) fn signing_request(name: &str, key: &Secret) -> Result<Vec<u8>, InvalidCertificate> {
    let key = KeyPair::from_pem(key.reveal()).map_err(InvalidCertificate::new)?;
    let mut params = CertificateParams::new([name.to_owned()]).map_err(InvalidCertificate::new)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(InvalidCertificate::new)?;
    Ok(request.der().to_vec())
}

/// The maximum time from now to the begin of the validity of a certificate: 1 day.
const MAX_FUTURE_SECONDS: i64 = 24 * 3600;

/// Reads the first certificate of a chain. It must be for this name and this key, and valid at `now`. A begin within a
/// day is accepted, because clocks differ.
pub(crate) fn read_leaf(chain: &str, name: &str, key: &Secret, now: Time) -> Result<Leaf, InvalidCertificate> {
    // `Certificate::load_pem_chain` panics on malformed texts.
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
    let chain = chain.map_err(InvalidCertificate::new)?;
    let leaf = chain.first().ok_or_else(|| InvalidCertificate::new("the chain is empty"))?;
    let leaf = Certificate::from_der(leaf).map_err(InvalidCertificate::new)?.tbs_certificate;
    let key = KeyPair::from_pem(key.reveal()).map_err(InvalidCertificate::new)?;
    if leaf.subject_public_key_info.subject_public_key.raw_bytes() != key.public_key_raw() {
        return Err(InvalidCertificate::new("the certificate is for another key"));
    }
    let names = leaf.get::<SubjectAltName>().map_err(InvalidCertificate::new)?.map(|(_, names)| names.0);
    let is_named = |it: &GeneralName| matches!(it, GeneralName::DnsName(it) if it.as_str().eq_ignore_ascii_case(name));
    if !names.unwrap_or_default().iter().any(is_named) {
        return Err(InvalidCertificate::new("the certificate is for another name"));
    }
    let issuer = leaf.get::<AuthorityKeyIdentifier>().map_err(InvalidCertificate::new)?;
    let issuer = issuer.and_then(|(_, issuer)| issuer.key_identifier);
    let renewal_id = issuer.map(|issuer| {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        format!("{}.{}", encode(issuer.as_bytes()), encode(leaf.serial_number.as_bytes()))
    });
    let (not_before, not_after) = (time(leaf.validity.not_before)?, time(leaf.validity.not_after)?);
    if not_after <= now {
        return Err(InvalidCertificate::new("the certificate has expired"));
    }
    if not_before > now.plus_seconds(MAX_FUTURE_SECONDS) {
        return Err(InvalidCertificate::new("the certificate is not valid yet"));
    }
    Ok(Leaf { not_before, not_after, renewal_id })
}

fn time(time: X509Time) -> Result<Time, InvalidCertificate> {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).map_err(InvalidCertificate::new)?;
    DateTime::from_timestamp(seconds, 0).map(Time::new).ok_or_else(|| InvalidCertificate::new("invalid validity"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn self_signed(name: &str, key: &Secret) -> String {
        let key = KeyPair::from_pem(key.reveal()).unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.use_authority_key_identifier_extension = true;
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 4, 1);
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn certificate_must_match_name_and_key() {
        let (key, other) = (generate().unwrap(), generate().unwrap());
        let chain = self_signed("*.example.org", &key);
        let now = Time::new("2026-02-01T00:00:00Z".parse().unwrap());
        let read_leaf = |chain: &str, name: &str, key: &Secret| read_leaf(chain, name, key, now);
        let leaf = read_leaf(&chain, "*.example.org", &key).unwrap();
        assert!(leaf.not_before < leaf.not_after);
        assert!(leaf.renewal_id.is_some_and(|id| id.split_once('.').is_some()));
        assert!(read_leaf(&chain, "*.example.org", &other).is_err());
        assert!(read_leaf(&chain, "www.example.org", &key).is_err());
        for malformed in ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            assert!(read_leaf(malformed, "*.example.org", &key).is_err(), "{malformed}");
        }
    }

    #[test]
    fn certificate_must_be_valid() {
        let key = generate().unwrap();
        let chain = self_signed("example.org", &key);
        let is_valid = |at: &str| read_leaf(&chain, "example.org", &key, Time::new(at.parse().unwrap())).is_ok();
        assert!(is_valid("2025-12-31T00:00:00Z") && is_valid("2026-03-31T23:59:59Z"));
        assert!(!is_valid("2025-12-30T23:59:59Z") && !is_valid("2026-04-01T00:00:00Z"));
    }

    /// The example of RFC 9773 section 4.1.
    #[test]
    fn renewal_id_contains_the_key_of_the_issuer_and_the_serial_number() {
        let secret = generate().unwrap();
        let key = KeyPair::from_pem(secret.reveal()).unwrap();
        let mut params = CertificateParams::new(["example.org".to_owned()]).unwrap();
        let issuer = b"\x69\x88\x5b\x6b\x87\x46\x40\x41\xe1\xb3\x7b\x84\x7b\xa0\xae\x2c\xde\x01\xc8\xd4";
        params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(issuer.to_vec());
        params.use_authority_key_identifier_extension = true;
        // Its encoding begins with a zero, because the first bit is set.
        params.serial_number = Some(rcgen::SerialNumber::from_slice(b"\x87\x65\x43\x21"));
        let chain = params.self_signed(&key).unwrap().pem();
        let now = Time::new("2026-02-01T00:00:00Z".parse().unwrap());
        let leaf = read_leaf(&chain, "example.org", &secret, now).unwrap();
        assert_eq!(leaf.renewal_id.unwrap(), "aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE");
    }

    #[test]
    fn signing_request_contains_the_name() {
        let request = signing_request("*.example.org", &generate().unwrap()).unwrap();
        assert!(request.windows(13).any(|bytes| bytes == b"*.example.org"));
    }
}
