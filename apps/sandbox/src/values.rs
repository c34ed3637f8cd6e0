//! Values that systems create.

use chrono::{DateTime, Utc};
use ring::digest::{SHA256, digest};

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "the sandbox shares no code with the product")]
pub(crate) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Returns an id that no other run of the sandbox has used.
pub(crate) fn new_id() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).unwrap();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// Derives an id from a text. It is the same in every run, because services identify users by id.
pub(crate) fn stable_id(text: &str) -> u32 {
    digest(&SHA256, text.as_bytes()).as_ref().iter().take(4).fold(0, |id, byte| id << 8 | u32::from(*byte))
}

/// Formats cents for a page.
pub(crate) fn dollars(cents: i64) -> String {
    format!("${}.{:02}", cents / 100, cents % 100)
}
