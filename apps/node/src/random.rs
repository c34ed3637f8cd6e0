//! Randomness on which no answer depends.

use uuid::Uuid;

/// Names a request.
#[expect(clippy::disallowed_methods, reason = "kernel::World, which tests can fix, would bring Postgres into the node")]
pub fn id() -> Uuid {
    Uuid::new_v4()
}

/// Any byte.
pub fn byte() -> u8 {
    let [byte, ..] = id().into_bytes();
    byte
}
