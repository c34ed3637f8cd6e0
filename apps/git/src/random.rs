//! Random values.

use std::io;

use ring::rand::{SecureRandom as _, SystemRandom};

/// Returns 32 random bytes in hexadecimal.
#[expect(clippy::disallowed_methods, reason = "kernel::ClockRng would make the node depend on Postgres")]
pub fn token() -> io::Result<String> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
