//! The ids of mails.

use uuid::{Builder, Uuid};

use crate::clock::since_epoch;
use crate::random;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// Returns a new id: a UUID of version 7 as a TypeID (public TypeID specification 0.3) with the prefix `mail`.
pub fn new_mail_id() -> String {
    let millis = u64::try_from(since_epoch().as_millis()).unwrap_or_default();
    let [_, _, _, _, _, _, random @ ..] = random::id().into_bytes();
    encode(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
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
            ("00000000-0000-0000-0000-000000000000", "mail_00000000000000000000000000"),
            ("01890a5d-ac96-774b-bcce-b302099a8057", "mail_01h455vb4pex5vsknk084sn02q"),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff", "mail_7zzzzzzzzzzzzzzzzzzzzzzzzz"),
        ] {
            assert_eq!(encode(Uuid::parse_str(id).unwrap()), text);
        }
    }

    #[test]
    fn new_ids_differ() {
        assert_ne!(new_mail_id(), new_mail_id());
    }
}
