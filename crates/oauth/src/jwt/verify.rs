//! Verification of access tokens (RFC 9068 section 4, RFC 8725).
//!
//! The key determines the algorithm. No field of the header selects an algorithm or a key's location: `jku`, `jwk`,
//! `x5u` and `x5c` have no effect.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kernel::{ClientId, GrantId, ScopeSet, SigningKeyId, Time, UserId};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value;

use super::{TYPE, VerifiedToken};
use crate::error::OAuthError;

/// The longest token that is read. This server issues tokens of about 700 bytes.
const MAX_LENGTH: usize = 4096;
/// The maximum time by which the clock of another process of this installation may be ahead.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// The reason why a token is rejected, as a label for metrics. Clients do not receive it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the access token is invalid: {0}")]
pub struct InvalidToken(pub &'static str);

/// The reason why a token does not authenticate its bearer.
#[derive(Debug, thiserror::Error)]
pub enum RejectedToken {
    /// The token is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidToken),
    /// The keys cannot be loaded, so the token cannot be verified.
    #[error("the signing keys cannot be loaded")]
    Keys(#[source] OAuthError),
}

/// The claims that every token must have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected<'a> {
    pub(crate) issuer: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) now: Time,
}

/// A token in the compact form (RFC 7515 section 7.1) whose header is acceptable.
#[derive(Debug)]
pub(crate) struct UnverifiedToken<'a> {
    /// The key that the header names.
    pub(crate) key: SigningKeyId,
    signed: &'a str,
    payload: &'a str,
    signature: &'a str,
}

impl<'a> UnverifiedToken<'a> {
    /// Splits a token, and checks its header.
    pub(crate) fn parse(text: &'a str) -> Result<Self, InvalidToken> {
        if text.len() > MAX_LENGTH {
            return Err(InvalidToken("too_long"));
        }
        let (signed, signature) = text.rsplit_once('.').ok_or(InvalidToken("malformed"))?;
        let (header, payload) = signed.split_once('.').ok_or(InvalidToken("malformed"))?;
        let header = Object::decode(header)?;
        if header.string("alg")? != "ES256" {
            return Err(InvalidToken("algorithm"));
        }
        let media_type = header.string("typ")?.to_ascii_lowercase();
        if media_type.strip_prefix("application/").unwrap_or(&media_type) != TYPE {
            return Err(InvalidToken("type"));
        }
        // A recipient must reject extensions that it does not understand, and this server understands none (RFC 7515
        // section 4.1.11).
        if header.has("crit") {
            return Err(InvalidToken("critical"));
        }
        let key = header.string("kid")?.parse().map_err(|_| InvalidToken("key"))?;
        Ok(Self { key, signed, payload, signature })
    }

    /// Checks the signature with the key that the header names, and then the claims.
    pub(crate) fn verify(&self, public_key: &[u8], expected: Expected<'_>) -> Result<VerifiedToken, InvalidToken> {
        let signature = URL_SAFE_NO_PAD.decode(self.signature).map_err(|_| InvalidToken("malformed"))?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public_key)
            .verify(self.signed.as_bytes(), &signature)
            .map_err(|_| InvalidToken("signature"))?;
        let claims = Object::decode(self.payload)?;
        let Expected { issuer, audience, now } = expected;
        if claims.string("iss")? != issuer {
            return Err(InvalidToken("issuer"));
        }
        if claims.string("aud")? != audience {
            return Err(InvalidToken("audience"));
        }
        let (seconds, exp, iat) = (now.unix_seconds(), claims.integer("exp")?, claims.integer("iat")?);
        if exp <= seconds {
            return Err(InvalidToken("expired"));
        }
        let is_early = claims.has("nbf") && claims.integer("nbf")? > seconds;
        if is_early || iat > seconds.saturating_add(CLOCK_SKEW_SECONDS) {
            return Err(InvalidToken("not_yet_valid"));
        }
        Ok(VerifiedToken {
            user: claims.string("sub")?.parse::<UserId>().map_err(|_| InvalidToken("claims"))?,
            client: claims.string("client_id")?.parse::<ClientId>().map_err(|_| InvalidToken("claims"))?,
            grant: claims.string("sid")?.parse::<GrantId>().map_err(|_| InvalidToken("claims"))?,
            scopes: claims.string("scope")?.parse::<ScopeSet>().map_err(|_| InvalidToken("claims"))?,
            expires_at: now.plus_seconds(exp.saturating_sub(seconds)),
        })
    }
}

/// A JSON object whose member names are unique (RFC 7515 section 4, RFC 7519 section 4). Members that this server does
/// not know have no effect.
#[derive(Debug)]
struct Object(BTreeMap<String, Value>);

impl Object {
    /// Decodes a part of a token: base64url without padding, and JSON.
    fn decode(part: &str) -> Result<Self, InvalidToken> {
        let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| InvalidToken("malformed"))?;
        serde_json::from_slice(&bytes).map_err(|_| InvalidToken("malformed"))
    }

    /// Returns whether the object has this member, with any value.
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn string(&self, name: &str) -> Result<&str, InvalidToken> {
        self.0.get(name).and_then(Value::as_str).ok_or(InvalidToken("malformed"))
    }

    fn integer(&self, name: &str) -> Result<i64, InvalidToken> {
        self.0.get(name).and_then(Value::as_i64).ok_or(InvalidToken("malformed"))
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, value)) = map.next_entry()? {
            if members.insert(name, value).is_some() {
                return Err(A::Error::custom("a member is repeated"));
            }
        }
        Ok(Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};

    use super::*;

    /// 1,800,000,000 seconds after 1970-01-01T00:00:00Z.
    const NOW: &str = "2027-01-15T08:00:00Z";
    const HEADER: &str = r#"{"alg":"ES256","typ":"at+jwt","kid":"jwk_01h455vb4pex5vsknk084sn02q"}"#;
    const CLAIMS: &str = r#"{"iss":"https://svc.example","sub":"usr_01h455vb4pex5vsknk084sn02q",
        "aud":"https://svc.example","exp":1800000900,"iat":1800000000,"jti":"1",
        "client_id":"app_01h455vb4pex5vsknk084sn02q","scope":"account:read","sid":"gnt_01h455vb4pex5vsknk084sn02q"}"#;

    struct Key(EcdsaKeyPair, SystemRandom);

    impl Key {
        #[expect(clippy::disallowed_methods, reason = "a key of this test")]
        fn generate() -> Self {
            let random = SystemRandom::new();
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
            Self(pair, random)
        }

        fn sign(&self, header: &str, claims: &str) -> String {
            let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
            let signature = self.0.sign(&self.1, signed.as_bytes()).unwrap();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        }

        fn verify(&self, token: &str) -> Result<VerifiedToken, InvalidToken> {
            let (issuer, now) = ("https://svc.example", NOW.parse().unwrap());
            let expected = Expected { issuer, audience: issuer, now };
            UnverifiedToken::parse(token)?.verify(self.0.public_key().as_ref(), expected)
        }
    }

    /// Inserts a member at the beginning of an object.
    fn with(object: &str, member: &str) -> String {
        object.replacen('{', &format!("{{{member},"), 1)
    }

    #[test]
    fn each_rejection_has_its_reason() {
        let key = Key::generate();
        assert_eq!(key.verify(&key.sign(HEADER, CLAIMS)).unwrap().scopes.to_string(), "account:read");
        let known = key.sign(&with(HEADER, r#""cty":"x""#), &with(CLAIMS, r#""nbf":1799999999,"a":{"b":[null]}"#));
        assert!(key.verify(&known).is_ok());
        for (header, reason) in [
            (HEADER.replace("ES256", "ES384"), "algorithm"),
            (HEADER.replace("at+jwt", "JWT"), "type"),
            (HEADER.replace("jwk_", "key_"), "key"),
            (with(HEADER, r#""crit":["exp"]"#), "critical"),
            (with(HEADER, r#""crit":null"#), "critical"),
            (with(HEADER, r#""x":1,"x":1"#), "malformed"),
            (with(HEADER, r#""alg":"ES256""#), "malformed"),
            (HEADER.replace(r#""ES256""#, "null"), "malformed"),
            (r#"["ES256","at+jwt","jwk_01h455vb4pex5vsknk084sn02q",null]"#.to_owned(), "malformed"),
            (with(HEADER, &format!(r#""x":{}{}"#, "[".repeat(200), "]".repeat(200))), "malformed"),
            (with(HEADER, &format!(r#""x":"{}""#, "x".repeat(MAX_LENGTH))), "too_long"),
        ] {
            assert_eq!(key.verify(&key.sign(&header, CLAIMS)).unwrap_err().0, reason, "{header}");
        }
        let array = r#"["https://svc.example","usr_01h455vb4pex5vsknk084sn02q","https://svc.example",1800000900,
            1800000000,null,"app_01h455vb4pex5vsknk084sn02q","account:read","gnt_01h455vb4pex5vsknk084sn02q"]"#;
        for (claims, reason) in [
            (CLAIMS.replace(r#""iss":"https"#, r#""iss":"http"#), "issuer"),
            (CLAIMS.replace(r#""aud":"https"#, r#""aud":"http"#), "audience"),
            (CLAIMS.replace("1800000900", "1800000000"), "expired"),
            (CLAIMS.replace("1800000900", "1800000900.5"), "malformed"),
            (CLAIMS.replace("1800000900", "99999999999999999999"), "malformed"),
            (CLAIMS.replace(r#""iat":1800000000"#, r#""iat":1800000061"#), "not_yet_valid"),
            (with(CLAIMS, r#""nbf":1800000001"#), "not_yet_valid"),
            (with(CLAIMS, r#""nbf":null"#), "malformed"),
            (with(CLAIMS, r#""x":1,"x":1"#), "malformed"),
            (with(CLAIMS, r#""sid":"gnt_01h455vb4pex5vsknk084sn02q""#), "malformed"),
            (CLAIMS.replace("account:read", "everything"), "claims"),
            (CLAIMS.replace("usr_", "org_"), "claims"),
            (array.to_owned(), "malformed"),
        ] {
            assert_eq!(key.verify(&key.sign(HEADER, &claims)).unwrap_err().0, reason, "{claims}");
        }
        let stranger = Key::generate().sign(HEADER, CLAIMS);
        assert_eq!(key.verify(&stranger).unwrap_err().0, "signature");
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_rejected(text in "[ -~]{0,100}", header in ".{0,80}", claims in ".{0,80}") {
            let key = Key::generate();
            prop_assert!(key.verify(&text).is_err());
            prop_assert!(key.verify(&key.sign(&header, CLAIMS)).is_err());
            prop_assert!(key.verify(&key.sign(HEADER, &claims)).is_err());
        }

        #[test]
        fn changed_token_is_rejected(at in any::<prop::sample::Index>(), byte in 0x21u8..0x7f) {
            let key = Key::generate();
            let valid = key.sign(HEADER, CLAIMS);
            let mut changed = valid.clone().into_bytes();
            let at = at.index(changed.len());
            changed[at] = byte;
            let changed = String::from_utf8(changed).unwrap();
            prop_assert_eq!(key.verify(&changed).is_ok(), changed == valid);
        }
    }
}
