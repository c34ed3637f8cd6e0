//! Random values.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Returns 32 random bytes.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn bytes() -> io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Returns 32 random bytes in hexadecimal.
pub fn token() -> io::Result<String> {
    Ok(bytes()?.iter().map(|byte| format!("{byte:02x}")).collect())
}
