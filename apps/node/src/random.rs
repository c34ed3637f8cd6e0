//! Randomness.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};
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

/// A key.
#[expect(clippy::disallowed_methods, reason = "kernel::World, which tests can fix, would bring Postgres into the node")]
pub fn key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    SystemRandom::new().fill(&mut key).map_err(io::Error::other)?;
    Ok(key)
}
