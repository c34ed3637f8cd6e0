//! Certificates like those of a public authority: ECDSA P-256, with an intermediate.

use anyhow::Result;
use kernel::ClockRng;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DistinguishedName, DnType, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;

/// The extension for signed certificate timestamps (RFC 6962).
const TIMESTAMPS: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];
/// The bytes that public authorities add to a certificate: timestamps, addresses and policies.
const ADDED_BYTES: usize = 400;

/// The years in which the certificates are valid.
pub const VALID_YEARS: [i32; 2] = [2025, 2090];

pub struct Authority {
    intermediate: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate of one name.
pub struct Leaf {
    /// The certificate.
    pub der: CertificateDer<'static>,
    /// The certificate and the intermediate, as PEM.
    pub chain: String,
    /// The private key, as PEM.
    pub key: String,
}

impl Authority {
    pub fn generate() -> Result<Self> {
        let root = CertifiedIssuer::self_signed(authority("bench root")?, KeyPair::generate()?)?;
        let intermediate = CertifiedIssuer::signed_by(authority("bench intermediate")?, KeyPair::generate()?, &root)?;
        Ok(Self { intermediate })
    }

    /// Issues a certificate with a new key.
    pub fn issue(&self, name: &str) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let mut params = params(vec![name.to_owned()], name)?;
        params.use_authority_key_identifier_extension = true;
        let added = ClockRng::system().bytes::<ADDED_BYTES>().to_vec();
        params.custom_extensions.push(CustomExtension::from_oid_content(TIMESTAMPS, added));
        let certificate = params.signed_by(&key, &self.intermediate)?;
        let chain = format!("{}{}", certificate.pem(), self.intermediate.pem());
        Ok(Leaf { der: certificate.der().clone(), chain, key: key.serialize_pem() })
    }
}

impl Leaf {
    /// Returns the private key and the chain in one file.
    pub fn pem(&self) -> String {
        format!("{}{}", self.key, self.chain)
    }
}

fn authority(name: &str) -> Result<CertificateParams> {
    let mut params = params(Vec::new(), name)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(params)
}

fn params(names: Vec<String>, subject: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(names)?;
    let [first, last] = VALID_YEARS;
    (params.not_before, params.not_after) = (date_time_ymd(first, 1, 1), date_time_ymd(last, 1, 1));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    Ok(params)
}
