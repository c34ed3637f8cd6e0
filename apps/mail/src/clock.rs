//! The time and new ids.

use chrono::{DateTime, Utc};
use uuid::Uuid;

/// The digits of a TypeID: Crockford's base32 in lower case.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Returns the time.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Returns a new id (UUIDv7). Ids sort by the time of their creation.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn new_id() -> Uuid {
    Uuid::now_v7()
}

/// Returns the text of a mail's id: a TypeID, as `kernel::id` describes it.
pub fn mail_id(id: Uuid) -> String {
    let digit = |position: u32| (id.as_u128() >> (5 * position)) & 31;
    let digits = (0..26).rev().filter_map(|position| DIGITS.get(usize::try_from(digit(position)).ok()?));
    ["mail_".to_owned(), digits.map(|digit| char::from(*digit)).collect()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_ids_are_type_ids() {
        for (id, text) in [
            (0, "mail_00000000000000000000000000"),
            (1, "mail_00000000000000000000000001"),
            (u128::MAX, "mail_7zzzzzzzzzzzzzzzzzzzzzzzzz"),
            // From the examples of the TypeID specification.
            (0x0189_0a5d_ac96_774b_bcce_b302_099a_8057, "mail_01h455vb4pex5vsknk084sn02q"),
        ] {
            assert_eq!(mail_id(Uuid::from_u128(id)), text);
        }
    }
}
