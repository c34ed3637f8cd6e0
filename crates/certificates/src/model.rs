//! Names, challenges and certificates.

use kernel::{CertificateId, Secret, Time};

kernel::words! {
    /// The state of a name that needs a certificate.
    pub enum NameState {
        /// The first certificate is not issued yet.
        Pending = "pending",
        /// The name has a certificate.
        Active = "active",
        /// The name has no valid certificate, and the last order failed.
        Failed = "failed",
    }
}

kernel::words! {
    /// A challenge type of ACME.
    pub enum Challenge {
        /// A TXT record (RFC 8555 section 8.4).
        Dns01 = "dns-01",
        /// A file below `/.well-known/acme-challenge/` (RFC 8555 section 8.3).
        Http01 = "http-01",
    }
}

/// A reference to a certificate, without the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateReference {
    pub id: CertificateId,
    /// The hostname, or the wildcard of the platform's domain.
    pub name: String,
    pub not_after: Time,
}

/// A certificate with its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedCertificate {
    pub reference: CertificateReference,
    /// PEM, the certificate of the name first.
    pub chain: String,
    /// PKCS #8 as PEM.
    pub key: Secret,
}

/// The current certificate of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiCertificate {
    /// The caller has it already.
    Held,
    New(IssuedCertificate),
}
