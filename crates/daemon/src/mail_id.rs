//! The ids of mails.

use uuid::Uuid;

/// The digits of a TypeID: Crockford's base32 in lower case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// Returns a new id of a mail: a UUIDv7 as a TypeID (public TypeID specification 0.3) with the prefix `mail`, as the
/// control plane parses it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the programs depend on Postgres")]
pub fn new_mail_id() -> String {
    encode(Uuid::now_v7())
}

fn encode(id: Uuid) -> String {
    let bits = id.as_u128();
    let digits = (0..LENGTH).rev().map(|position| (bits >> (5 * position)) & 31);
    let digits = digits.map(|digit| char::from(ALPHABET.get(digit as usize).copied().unwrap_or(b'0')));
    format!("mail_{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_encoded_as_in_the_specification() {
        for (id, text) in [
            (0, "mail_00000000000000000000000000"),
            (1, "mail_00000000000000000000000001"),
            (u128::MAX, "mail_7zzzzzzzzzzzzzzzzzzzzzzzzz"),
            // From the examples of the TypeID specification.
            (0x0189_0a5d_ac96_774b_bcce_b302_099a_8057, "mail_01h455vb4pex5vsknk084sn02q"),
        ] {
            assert_eq!(encode(Uuid::from_u128(id)), text);
        }
    }

    #[test]
    fn new_ids_differ() {
        assert_ne!(new_mail_id(), new_mail_id());
    }
}
