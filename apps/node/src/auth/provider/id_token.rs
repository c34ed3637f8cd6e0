//! The checks of ID tokens (OpenID Connect Core, section 3.1.3.7).
//!
//! An ID token comes from the token endpoint over verified TLS, so its signature is optional (providers.md section 6).

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;

use super::{ProviderError, Result};

/// The largest difference of the clocks of node and provider.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// A parsed ID token, whose claims and signature are not checked yet.
pub struct Token<'a> {
    pub header: Header,
    claims: RawClaims,
    /// The signed text: header and claims.
    pub signed: &'a str,
    pub signature: Vec<u8>,
}

/// The header (RFC 7515 section 4.1). Other members, such as keys, are ignored.
#[derive(Deserialize)]
pub struct Header {
    pub alg: String,
    pub kid: Option<String>,
}

#[derive(Deserialize)]
struct RawClaims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    nonce: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// The checked claims.
#[derive(Debug)]
pub struct Claims {
    pub subject: String,
}

/// The values that the claims must have.
pub struct Expected<'a> {
    /// `None` if every issuer is accepted.
    pub issuer: Option<&'a str>,
    pub client_id: &'a str,
    pub nonce: &'a str,
    /// The time since the Unix epoch.
    pub now: Duration,
}

impl<'a> Token<'a> {
    /// Parses an ID token in the compact serialization (RFC 7515 section 7.1).
    pub fn read(token: &'a str) -> Result<Self> {
        let malformed = || ProviderError::failed("the ID token is malformed");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let header = serde_json::from_slice(&decode(header)?).map_err(|_| malformed())?;
        let claims = serde_json::from_slice(&decode(claims)?).map_err(|_| malformed())?;
        Ok(Self { header, claims, signed, signature: decode(signature)? })
    }

    /// Checks the claims.
    pub fn check(self, expected: &Expected<'_>) -> Result<Claims> {
        let RawClaims { iss, sub, aud, azp, exp, nonce } = self.claims;
        let is_audience = match &aud {
            Audience::One(audience) => audience == expected.client_id,
            // With several audiences, the authorized party must be the client.
            Audience::Many(audiences) => {
                audiences.iter().any(|audience| audience == expected.client_id)
                    && (audiences.len() == 1 || azp.is_some())
            }
        };
        let reason = if expected.issuer.is_some_and(|issuer| issuer != iss) {
            "the ID token is of another issuer"
        } else if !is_audience || azp.is_some_and(|party| party != expected.client_id) {
            "the ID token is for another client"
        } else if exp + MAX_CLOCK_DIFFERENCE.as_secs_f64() < expected.now.as_secs_f64() {
            "the ID token has expired"
        } else if nonce.as_deref() != Some(expected.nonce) {
            "the ID token is of another sign-in"
        } else {
            return Ok(Claims { subject: sub });
        };
        Err(ProviderError::failed(reason))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(change: impl FnOnce(&mut Value), issuer: Option<&str>) -> Result<Claims> {
        let mut claims = json!({ "iss": "https://id.example", "sub": "1", "aud": "client", "exp": 1000, "nonce": "n" });
        change(&mut claims);
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}.", encode(&json!({ "alg": "RS256" })), encode(&claims));
        let expected = Expected { issuer, client_id: "client", nonce: "n", now: Duration::from_secs(1000) };
        Token::read(&text)?.check(&expected)
    }

    #[test]
    fn claims_must_be_those_of_the_flow() {
        let issuer = Some("https://id.example");
        assert_eq!(check(|_| (), issuer).unwrap().subject, "1");
        for accepted in [
            json!({ "aud": ["client"] }),
            json!({ "aud": ["other", "client"], "azp": "client" }),
            json!({ "exp": 941 }),
            json!({ "exp": 1000.5 }),
        ] {
            let merge =
                |claims: &mut Value| claims.as_object_mut().unwrap().extend(accepted.as_object().unwrap().clone());
            assert!(check(merge, issuer).is_ok(), "{accepted}");
        }
        assert!(check(|claims| claims["iss"] = "https://other.example".into(), None).is_ok());
        for rejected in [
            json!({ "iss": "https://id.example/" }),
            json!({ "aud": "other" }),
            json!({ "aud": [] }),
            json!({ "aud": ["other", "client"] }),
            json!({ "aud": "client", "azp": "other" }),
            json!({ "exp": 939 }),
            json!({ "exp": "1000" }),
            json!({ "nonce": "m" }),
            json!({ "nonce": null }),
            json!({ "sub": 1 }),
        ] {
            let merge =
                |claims: &mut Value| claims.as_object_mut().unwrap().extend(rejected.as_object().unwrap().clone());
            assert!(check(merge, issuer).is_err(), "{rejected}");
        }
        for malformed in ["", ".", "..", "a.b.c", "e30.e30.", "not a token"] {
            assert!(Token::read(malformed).is_err(), "{malformed}");
        }
    }
}
