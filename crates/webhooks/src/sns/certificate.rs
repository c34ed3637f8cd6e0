//! The certificates that sign messages. Their chain is not verified: the receiver fetches them over TLS from the
//! notification service, which proves their origin.

use x509_cert::Certificate;
use x509_cert::der::Decode as _;
use x509_cert::time::Time;

/// A signing certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnsCertificate {
    /// The bytes of the public key. Only an RSA key (RFC 8017, `RSAPublicKey`) can verify a message.
    public_key: Vec<u8>,
    /// The start of the validity, as Unix time in seconds.
    not_before: i64,
    /// The last second of the validity, as Unix time (RFC 5280 section 4.1.2.5).
    not_after: i64,
}

/// The bytes are not a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a certificate (RFC 5280)")]
pub struct InvalidCertificate;

impl SnsCertificate {
    /// Parses a certificate (DER).
    ///
    /// # Errors
    /// Returns an error if the bytes are not a certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, InvalidCertificate> {
        let certificate = Certificate::from_der(der).map_err(|_| InvalidCertificate)?.tbs_certificate;
        let seconds = |time: Time| i64::try_from(time.to_unix_duration().as_secs()).map_err(|_| InvalidCertificate);
        Ok(Self {
            public_key: certificate.subject_public_key_info.subject_public_key.raw_bytes().to_vec(),
            not_before: seconds(certificate.validity.not_before)?,
            not_after: seconds(certificate.validity.not_after)?,
        })
    }

    /// Returns whether the certificate is valid at this Unix time in seconds.
    #[must_use]
    pub const fn is_valid_at(&self, now: i64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    pub(super) fn public_key(&self) -> &[u8] {
        &self.public_key
    }
}
