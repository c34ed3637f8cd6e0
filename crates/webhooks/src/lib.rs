//! Signatures of webhooks (Standard Webhooks, "Signature scheme"), with the same implementation for sent and received
//! messages.
//!
//! The signature covers the id, the timestamp and the raw bytes of the body. So a receiver verifies it before it parses
//! the body. The module [`sns`] verifies messages of Amazon SNS.

pub mod sns;

use base64::Engine as _;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use ring::hmac;

/// The maximum difference between a timestamp and the receiver's clock, in either direction.
pub const TOLERANCE_SECONDS: i64 = 300;
/// The maximum number of signatures of a message that are compared. Further ones are ignored.
pub const MAX_SIGNATURES: usize = 16;
/// The maximum length of a message's id, in bytes.
pub const MAX_ID_LENGTH: usize = 256;

/// The prefix of a secret. The key in base64 follows it.
const PREFIX: &str = "whsec_";

/// Base64 with or without padding, because senders use both.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A malformed secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// No secret is given, or a secret in the list is empty.
    #[error("must not be empty")]
    Empty,
    /// The text after the prefix is not a key in base64.
    #[error("must be base64 after whsec_")]
    Base64,
}

/// The key with which a sender signs.
#[derive(Debug, Clone)]
pub struct SigningKey(hmac::Key);

impl SigningKey {
    /// Reads a secret: base64 after `whsec_`, or any other text, whose bytes are the key.
    ///
    /// # Errors
    /// Returns an error for an empty secret and for malformed base64.
    pub fn parse(secret: &str) -> Result<Self, InvalidSecret> {
        let key = match secret.strip_prefix(PREFIX) {
            Some(encoded) => decode(encoded).ok_or(InvalidSecret::Base64)?,
            None if secret.is_empty() => return Err(InvalidSecret::Empty),
            None => secret.as_bytes().to_vec(),
        };
        Ok(Self(hmac_key(&key)))
    }

    /// Returns the value of the header `webhook-signature`. `timestamp` is the value of the header `webhook-timestamp`.
    #[must_use]
    pub fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        format!("v1,{}", STANDARD.encode(hmac::sign(&self.0, &signed_bytes(id, timestamp, body))))
    }
}

/// A received message.
#[derive(Debug, Clone, Copy)]
pub struct SignedMessage<'a> {
    /// The header `webhook-id`.
    pub id: &'a str,
    /// The header `webhook-timestamp`: Unix time in seconds.
    pub timestamp: &'a str,
    /// The header `webhook-signature`: signatures, separated by spaces.
    pub signatures: &'a str,
    /// The body as it was received.
    pub body: &'a [u8],
}

/// The reason why a message is not authentic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMessage {
    /// The id is empty, longer than [`MAX_ID_LENGTH`], or contains a dot. The signed text separates id, timestamp and
    /// body with dots. With a dot in the id, the same text could be split in another way, with the same signature.
    #[error("the id of the webhook is malformed")]
    Id,
    /// The timestamp does not consist of ASCII digits.
    #[error("the timestamp of the webhook is malformed")]
    Timestamp,
    /// The timestamp differs from the current time by more than [`TOLERANCE_SECONDS`].
    #[error("the timestamp of the webhook is too far from the present time")]
    Expired,
    /// None of the first [`MAX_SIGNATURES`] signatures is valid.
    #[error("the webhook has no valid signature")]
    Signature,
}

/// The keys of a receiver. Each secret has one or two keys (see [`Self::parse`]). During a rotation, there are several
/// secrets.
#[derive(Debug, Clone)]
pub struct VerifyingKeys(Vec<hmac::Key>);

impl VerifyingKeys {
    /// Parses secrets that are separated by commas. A secret with the prefix `whsec_` is accepted in both forms in use:
    /// the key is either the decoded base64 after the prefix, or the bytes of the whole text.
    ///
    /// # Errors
    /// Returns an error for an empty secret.
    pub fn parse(secrets: &str) -> Result<Self, InvalidSecret> {
        let mut keys = Vec::new();
        for secret in secrets.split(',').map(str::trim) {
            if secret.is_empty() || secret == PREFIX {
                return Err(InvalidSecret::Empty);
            }
            keys.push(hmac_key(secret.as_bytes()));
            keys.extend(secret.strip_prefix(PREFIX).and_then(decode).map(|key| hmac_key(&key)));
        }
        Ok(Self(keys))
    }

    /// Checks that a message is authentic and recent. `now` is the Unix time in seconds. Signatures are compared in
    /// constant time.
    ///
    /// # Errors
    /// Returns [`InvalidMessage`] if a check fails.
    pub fn verify(&self, message: SignedMessage<'_>, now: i64) -> Result<(), InvalidMessage> {
        let SignedMessage { id, timestamp, signatures, body } = message;
        if id.is_empty() || id.len() > MAX_ID_LENGTH || id.contains('.') {
            return Err(InvalidMessage::Id);
        }
        // `parse` would also accept a sign.
        let is_number = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let sent = timestamp.parse::<i64>().ok().filter(|_| is_number).ok_or(InvalidMessage::Timestamp)?;
        if sent.abs_diff(now) > TOLERANCE_SECONDS.unsigned_abs() {
            return Err(InvalidMessage::Expired);
        }
        let signed = signed_bytes(id, timestamp, body);
        let is_valid = signatures
            .split(' ')
            .take(MAX_SIGNATURES)
            .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
            .any(|signature| self.0.iter().any(|key| hmac::verify(key, &signed, &signature).is_ok()));
        if is_valid { Ok(()) } else { Err(InvalidMessage::Signature) }
    }
}

fn hmac_key(key: &[u8]) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key)
}

/// Decodes the base64 of a key. Returns `None` for malformed base64 and for an empty key.
fn decode(encoded: &str) -> Option<Vec<u8>> {
    BASE64.decode(encoded).ok().filter(|key| !key.is_empty())
}

fn signed_bytes(id: &str, timestamp: &str, body: &[u8]) -> Vec<u8> {
    [id.as_bytes(), b".", timestamp.as_bytes(), b".", body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of the Standard Webhooks specification.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const EXAMPLE: SignedMessage<'_> = SignedMessage {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: "1614265330",
        signatures: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        body: br#"{"test": 2432232314}"#,
    };
    const SENT: i64 = 1_614_265_330;

    fn verify(message: SignedMessage<'_>) -> Result<(), InvalidMessage> {
        VerifyingKeys::parse(SECRET).unwrap().verify(message, SENT)
    }

    #[test]
    fn example_of_the_specification_is_valid() {
        assert_eq!(verify(EXAMPLE), Ok(()));
        let SignedMessage { id, timestamp, signatures, body } = EXAMPLE;
        assert_eq!(SigningKey::parse(SECRET).unwrap().sign(id, timestamp, body), signatures);
    }

    #[test]
    fn every_part_is_signed() {
        assert_eq!(verify(SignedMessage { id: "msg_other", ..EXAMPLE }), Err(InvalidMessage::Signature));
        assert_eq!(verify(SignedMessage { timestamp: "1614265331", ..EXAMPLE }), Err(InvalidMessage::Signature));
        assert_eq!(
            verify(SignedMessage { body: br#"{"test":2432232314}"#, ..EXAMPLE }),
            Err(InvalidMessage::Signature)
        );
        let other = VerifyingKeys::parse("whsec_AAAA").unwrap();
        assert_eq!(other.verify(EXAMPLE, SENT), Err(InvalidMessage::Signature));
    }

    #[test]
    fn malformed_headers_are_rejected() {
        let long = "m".repeat(MAX_ID_LENGTH + 1);
        for id in ["", "msg.1", &long] {
            assert_eq!(verify(SignedMessage { id, ..EXAMPLE }), Err(InvalidMessage::Id), "{id:?}");
        }
        for timestamp in
            ["", "+1614265330", "-1", "1614265330.0", " 1614265330", "1e9", "١٦١٤٢٦٥٣٣٠", "99999999999999999999"]
        {
            let changed = verify(SignedMessage { timestamp, ..EXAMPLE });
            assert_eq!(changed, Err(InvalidMessage::Timestamp), "{timestamp:?}");
        }
        let of_v2 = EXAMPLE.signatures.replace("v1,", "v2,");
        for signatures in ["", "v1,", "v1", "v1,AAAA", &of_v2, EXAMPLE.signatures.trim_start_matches("v1,")] {
            let changed = verify(SignedMessage { signatures, ..EXAMPLE });
            assert_eq!(changed, Err(InvalidMessage::Signature), "{signatures:?}");
        }
    }

    #[test]
    fn one_of_several_signatures_and_secrets_is_enough() {
        let rotated = VerifyingKeys::parse(&format!("first, {SECRET} ,whsec_AAAA")).unwrap();
        assert_eq!(rotated.verify(EXAMPLE, SENT), Ok(()));
        let nth = |count| format!("{}{}", "v1,AAAA ".repeat(count), EXAMPLE.signatures);
        assert_eq!(verify(SignedMessage { signatures: &nth(MAX_SIGNATURES - 1), ..EXAMPLE }), Ok(()));
        let beyond = verify(SignedMessage { signatures: &nth(MAX_SIGNATURES), ..EXAMPLE });
        assert_eq!(beyond, Err(InvalidMessage::Signature));
    }

    #[test]
    fn time_is_limited_in_both_directions() {
        let keys = VerifyingKeys::parse(SECRET).unwrap();
        for (now, expected) in [
            (SENT - 300, Ok(())),
            (SENT + 300, Ok(())),
            (SENT - 301, Err(InvalidMessage::Expired)),
            (SENT + 301, Err(InvalidMessage::Expired)),
            (i64::MIN, Err(InvalidMessage::Expired)),
        ] {
            assert_eq!(keys.verify(EXAMPLE, now), expected, "{now}");
        }
    }

    #[test]
    fn both_forms_of_a_secret_are_accepted() {
        let SignedMessage { id, timestamp, body, .. } = EXAMPLE;
        // Base64 without padding; the whole text of a secret with the prefix; the text of a secret without the prefix.
        for (secret, key) in [
            ("whsec_a2V5IG9mIHRoZSB0ZXN0cw", &b"key of the tests"[..]),
            ("whsec_a2V5IG9mIHRoZSB0ZXN0cw==", b"key of the tests"),
            ("whsec_a2V5IG9mIHRoZSB0ZXN0cw==", b"whsec_a2V5IG9mIHRoZSB0ZXN0cw=="),
            ("whsec_not base64", b"whsec_not base64"),
            ("polar_whs_1", b"polar_whs_1"),
        ] {
            let signatures = &SigningKey(hmac_key(key)).sign(id, timestamp, body);
            let verified = VerifyingKeys::parse(secret).unwrap().verify(SignedMessage { signatures, ..EXAMPLE }, SENT);
            assert_eq!(verified, Ok(()), "{secret} {key:?}");
        }
    }

    #[test]
    fn malformed_secrets_are_rejected() {
        for secrets in ["", " ", "a,", ",a", "whsec_", "a,whsec_"] {
            assert_eq!(VerifyingKeys::parse(secrets).unwrap_err(), InvalidSecret::Empty, "{secrets:?}");
        }
        for (secret, error) in [
            ("", InvalidSecret::Empty),
            ("whsec_", InvalidSecret::Base64),
            ("whsec_a", InvalidSecret::Base64),
            ("whsec_a2V5!", InvalidSecret::Base64),
        ] {
            assert_eq!(SigningKey::parse(secret).unwrap_err(), error, "{secret:?}");
        }
    }
}
