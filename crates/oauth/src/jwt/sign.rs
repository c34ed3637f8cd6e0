//! Signing of access tokens.

use josekit::jws::alg::ecdsa::EcdsaJwsSigner;
use josekit::jws::{ES256, JwsHeader};
use josekit::jwt::{self, JwtPayload};
use kernel::SigningKeyId;
use serde_json::json;
use store::Error;

use super::{Claims, TYPE};

/// Signs with one key.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    key: SigningKeyId,
    signer: EcdsaJwsSigner,
}

impl Signer {
    /// Reads a private key (PKCS#8, DER).
    ///
    /// # Errors
    /// Returns an error if it is not a P-256 key.
    pub(crate) fn new(key: SigningKeyId, pkcs8: &[u8]) -> Result<Self, Error> {
        Ok(Self { key, signer: ES256.signer_from_der(pkcs8).map_err(Error::inconsistent)? })
    }

    /// Returns the signed token (RFC 9068 section 2).
    ///
    /// # Errors
    /// Returns an error if OpenSSL fails.
    pub(crate) fn sign(&self, issuer: &str, audience: &str, token_id: &str, claims: &Claims) -> Result<String, Error> {
        let Claims { user, client, grant, scopes, issued_at, expires_at } = claims;
        let mut header = JwsHeader::new();
        header.set_token_type(TYPE);
        header.set_key_id(self.key.to_string());
        let payload = json!({
            "iss": issuer,
            "sub": user,
            "aud": audience,
            "exp": expires_at.unix_seconds(),
            "iat": issued_at.unix_seconds(),
            "jti": token_id,
            "client_id": client,
            "scope": scopes.to_string(),
            "sid": grant,
        });
        let serde_json::Value::Object(payload) = payload else {
            return Err(Error::inconsistent("the payload is not an object"));
        };
        let payload = JwtPayload::from_map(payload).map_err(Error::inconsistent)?;
        jwt::encode_with_signer(&payload, &header, &self.signer).map_err(Error::inconsistent)
    }
}
