//! A TLS certificate for this machine, and its authority.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio_rustls::TlsAcceptor;

/// The names of this machine.
const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

/// A certificate, and its authority.
#[derive(Clone)]
pub struct Certificate {
    authority: String,
    chain: String,
    key: String,
    acceptor: TlsAcceptor,
}

impl Certificate {
    /// Generates an authority and a certificate for `localhost` and `127.0.0.1`.
    ///
    /// # Panics
    /// Panics if no key can be generated.
    #[must_use]
    pub fn generate() -> Self {
        Self::generate_for(&LOCAL)
    }

    /// Generates an authority and a certificate for these host names and addresses.
    ///
    /// # Panics
    /// Panics if no key can be generated, or a name is malformed.
    #[must_use]
    pub fn generate_for(names: &[&str]) -> Self {
        Self::issue(names, KeyPair::generate().unwrap())
    }

    /// Generates a certificate for `localhost` and `127.0.0.1`. Its authority has the certificate `keys/authority.pem`,
    /// so a program can trust it before the sandbox starts. The authority's key is public.
    pub(crate) fn generate_with_known_authority() -> Self {
        let key = KeyPair::from_pem(include_str!("../keys/authority.key")).unwrap();
        Self { authority: include_str!("../keys/authority.pem").to_owned(), ..Self::issue(&LOCAL, key) }
    }

    fn issue(names: &[&str], authority_key: KeyPair) -> Self {
        let mut authority = CertificateParams::default();
        // The authority needs another name than its certificates: OpenSSL treats a certificate with the name of its
        // issuer as self-signed.
        authority.distinguished_name.push(DnType::CommonName, "svc-sandbox authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, authority_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
        let (chain, key_pem) = (certificate.pem(), key.serialize_pem());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Self { authority: authority.pem(), chain, key: key_pem, acceptor }
    }

    /// Returns the authority's certificate as PEM, which clients must trust.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Returns the certificate as PEM, for servers that read it from a file.
    #[must_use]
    pub fn chain(&self) -> &str {
        &self.chain
    }

    /// Returns the private key as PEM, for servers that read it from a file.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns a TLS acceptor with the certificate.
    #[must_use]
    pub const fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}
