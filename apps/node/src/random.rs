//! Random values.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;

/// Returns a random id.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn id() -> Uuid {
    Uuid::new_v4()
}

/// Returns random bytes, for keys and nonces.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}
