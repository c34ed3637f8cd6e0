//! The ids of users: a UUIDv7 as a TypeID (public TypeID specification 0.3) with the prefix `sub`, for subscriber. Ids of
//! accounts of the platform itself begin with `usr_`.

use uuid::Uuid;

const PREFIX: &str = "sub_";
/// Crockford's base32 in lower case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// Returns a new id. Later ids are greater.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn new_user_id() -> Uuid {
    Uuid::now_v7()
}

/// Returns the text of an id.
pub fn user_id(id: Uuid) -> String {
    let bits = id.as_u128();
    let digits = (0..LENGTH).rev().map(|position| (bits >> (5 * position)) & 31);
    let digits = digits.map(|digit| char::from(ALPHABET.get(digit as usize).copied().unwrap_or(b'0')));
    PREFIX.chars().chain(digits).collect()
}

/// Parses the text of an id. Accepts only the text that `user_id` returns.
pub fn parse_user_id(text: &str) -> Option<Uuid> {
    let digits = text.strip_prefix(PREFIX)?;
    // 26 digits have 130 bits, so the first digit must be 0 to 7.
    if digits.len() != LENGTH || !matches!(digits.as_bytes().first(), Some(b'0'..=b'7')) {
        return None;
    }
    let value = |digit| ALPHABET.iter().position(|&known| known == digit);
    let bits = digits.bytes().try_fold(0, |bits: u128, digit| Some(bits << 5 | value(digit)? as u128));
    bits.map(Uuid::from_u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_one_text() {
        // From the examples of the TypeID specification.
        let id = Uuid::from_u128(0x0189_0a5d_ac96_774b_bcce_b302_099a_8057);
        assert_eq!(user_id(id), "sub_01h455vb4pex5vsknk084sn02q");
        for id in [id, Uuid::nil(), Uuid::max(), new_user_id()] {
            assert_eq!(parse_user_id(&user_id(id)), Some(id));
        }
        for text in [
            "",
            "sub_",
            "01h455vb4pex5vsknk084sn02q",
            "usr_01h455vb4pex5vsknk084sn02q",
            "sub_01H455VB4PEX5VSKNK084SN02Q",
            "sub_81h455vb4pex5vsknk084sn02q",
            "sub_01h455vb4pex5vsknk084sn02",
            "sub_01h455vb4pex5vsknk084sn02qq",
            "sub_01h455vb4pex5vsknk084sn02u",
            "sub_01h455vb4pex5vsknk084sn0\u{e4}",
        ] {
            assert_eq!(parse_user_id(text), None, "{text}");
        }
    }
}
