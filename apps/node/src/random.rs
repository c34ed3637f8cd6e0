//! Random values.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

/// A random id.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn id() -> Uuid {
    Uuid::new_v4()
}

/// A random byte.
pub fn byte() -> u8 {
    let [byte, ..] = id().into_bytes();
    byte
}

/// A random key.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn key() -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    SystemRandom::new().fill(&mut key).map_err(io::Error::other)?;
    Ok(key)
}
