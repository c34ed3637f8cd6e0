//! Signatures and certificates of the notification service.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_RSA_SHA256, date_time_ymd};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::{Map, Value};

use crate::rsa_key;

/// The beginning of a signed value with SHA-1: the algorithm in DER (RFC 8017 section 9.2, note 1).
const SHA1_PREFIX: [u8; 15] = *b"\x30\x21\x30\x09\x06\x05\x2b\x0e\x03\x02\x1a\x05\x00\x04\x14";

/// The signed fields, in the order of the signed text. Notifications do not sign the token.
const SIGNED: [&str; 8] = ["Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];

/// Returns the signature of a message. Version 1 uses SHA-1, version 2 uses SHA-256.
pub(super) fn sign(fields: &Map<String, Value>, version: &str) -> String {
    let is_notification = fields["Type"] == "Notification";
    let mut text = String::new();
    for name in SIGNED.iter().filter(|name| **name != "Token" || !is_notification) {
        if let Some(value) = fields.get(*name).and_then(Value::as_str) {
            text.extend([name, "\n", value, "\n"]);
        }
    }
    let signature = match version {
        "1" => rsa_key::sign_digest(&SHA1_PREFIX, digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()).as_ref()),
        _ => rsa_key::sign_sha256(text.as_bytes()),
    };
    STANDARD.encode(signature)
}

/// The certificate of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    Valid,
    Expired,
    NotYetValid,
}

/// Returns a certificate of the signing key as PEM.
pub(super) fn certificate(validity: Validity) -> String {
    let key = KeyPair::from_pkcs8_pem_and_sign_algo(rsa_key::PEM, &PKCS_RSA_SHA256).unwrap();
    let mut params = params();
    match validity {
        Validity::Valid => {}
        Validity::Expired => params.not_after = date_time_ymd(2020, 1, 1),
        Validity::NotYetValid => params.not_before = date_time_ymd(2090, 1, 1),
    }
    params.self_signed(&key).unwrap().pem()
}

/// Returns a certificate of another key, which is not an RSA key, as PEM.
pub(super) fn other_certificate() -> String {
    params().self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "sns.amazonaws.com");
    params
}
