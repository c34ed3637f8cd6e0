//! Forged access tokens.

#![expect(clippy::disallowed_methods, reason = "ring generates keys only with its own generator")]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::seal::Sealed;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};

use crate::support::App;

/// Signs arbitrary tokens with the server's own key.
pub struct Forger {
    pair: EcdsaKeyPair,
    pub kid: String,
    /// The public key as an uncompressed point.
    pub public_key: Vec<u8>,
}

impl Forger {
    /// Opens the newest signing key of the database.
    pub async fn of(app: &App) -> Self {
        let rows = app
            .db_rows(
                "SELECT id::text, encode(public_key, 'hex') AS public_key, encode(private_key, 'hex') AS private_key, \
                 key_id FROM oauth.signing_keys ORDER BY signs_from DESC LIMIT 1",
            )
            .await;
        let text = |name: &str| rows[0][name].as_str().unwrap().to_owned();
        let column = oauth::SEALED_COLUMNS.iter().find(|column| column.column == "private_key").unwrap();
        let sealed = Sealed { key_id: text("key_id"), bytes: bytes_of_hex(&text("private_key")) };
        let pkcs8 = testkit::keys().open(column.associated_data(&text("id")), &sealed).unwrap();
        let id: uuid::Uuid = text("id").parse().unwrap();
        let kid = kernel::SigningKeyId::from_uuid(id).to_string();
        Self { public_key: bytes_of_hex(&text("public_key")), ..Self::with_key(&pkcs8, kid) }
    }

    /// Creates a forger with a key that the server does not know.
    pub fn stranger(kid: String) -> Self {
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        Self::with_key(pkcs8.as_ref(), kid)
    }

    fn with_key(pkcs8: &[u8], kid: String) -> Self {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).unwrap();
        Self { pair, kid, public_key: Vec::new() }
    }

    pub fn header(&self) -> Value {
        json!({ "typ": "at+jwt", "alg": "ES256", "kid": self.kid })
    }

    /// Signs a token with these parts.
    pub fn sign(&self, header: &Value, claims: &Value) -> String {
        self.sign_text(&header.to_string(), &claims.to_string())
    }

    /// Signs a token whose parts need not be JSON.
    pub fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.signature(&signed);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns the signature of a text: r and s.
    pub fn signature(&self, signed: &str) -> Vec<u8> {
        self.pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap().as_ref().to_vec()
    }
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}
