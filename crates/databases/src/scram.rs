//! Passwords, and their SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677) in the format of Postgres's `rolpassword`.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kernel::ClockRng;
use ring::{digest, hmac, pbkdf2};

use crate::model::Password;

/// The number of iterations that Postgres uses by default. A higher number would not protect random passwords better.
const ITERATIONS: NonZeroU32 = NonZeroU32::MIN.saturating_add(4095);

/// Creates a password of 256 random bits. Its characters need no escape in an address.
pub(crate) fn new_password(clock_rng: &ClockRng) -> Password {
    Password::new(URL_SAFE_NO_PAD.encode(clock_rng.bytes::<32>()))
}

/// Computes the verifier of an ASCII password with a random salt. SASLprep does not change ASCII passwords.
pub(crate) fn verifier(clock_rng: &ClockRng, password: &Password) -> String {
    verifier_with_salt(clock_rng.bytes::<16>(), password)
}

fn verifier_with_salt(salt: [u8; 16], password: &Password) -> String {
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, password.reveal().as_bytes(), &mut salted);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let server_key = hmac::sign(&key, b"Server Key");
    format!(
        "SCRAM-SHA-256${ITERATIONS}:{}${}:{}",
        STANDARD.encode(salt),
        STANDARD.encode(stored_key),
        STANDARD.encode(server_key)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses the salt and the password of the example in RFC 7677. The example's server signature proves the server key,
    /// and its client proof proves the stored key.
    #[test]
    fn verifier_matches_example_of_rfc_7677() {
        let salt: [u8; 16] = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap().try_into().unwrap();
        let verifier = verifier_with_salt(salt, &Password::new("pencil".to_owned()));
        let (_, keys) = verifier.rsplit_once('$').unwrap();
        assert!(verifier.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"), "{verifier}");
        let (stored_key, server_key) = keys.split_once(':').unwrap();
        let message = b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let sign = |key: &str| {
            let key = STANDARD.decode(key).unwrap();
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), message)
        };
        assert_eq!(STANDARD.encode(sign(server_key)), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let signature = sign(stored_key);
        let client_key: Vec<u8> = proof.iter().zip(signature.as_ref()).map(|(a, b)| a ^ b).collect();
        assert_eq!(STANDARD.encode(digest::digest(&digest::SHA256, &client_key)), stored_key);
    }

    #[test]
    fn passwords_and_salts_differ() {
        let clock_rng = ClockRng::system();
        let password = new_password(&clock_rng);
        assert_eq!(password.reveal().len(), 43);
        assert_ne!(password, new_password(&clock_rng));
        assert_ne!(verifier(&clock_rng, &password), verifier(&clock_rng, &password));
    }
}
