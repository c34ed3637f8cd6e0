//! Hashes the shared password of a project (Argon2id, RFC 9106, with the crate's recommended parameters).

use std::sync::LazyLock;

use argon2::{Argon2, PasswordHasher as _};
use kernel::ClockRng;
use tokio::sync::Semaphore;

use super::Result;

/// Limits concurrent hashes to two. Each uses 19 MiB and one core for about 25 ms.
static HASH_PERMITS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));

/// Returns the password's hash, as a PHC string.
pub(super) async fn hash(clock_rng: &ClockRng, password: String) -> Result<String> {
    let salt = clock_rng.bytes::<16>();
    let permit = HASH_PERMITS.acquire().await.map_err(store::Error::inconsistent)?;
    let hashed = tokio::task::spawn_blocking(move || {
        let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
        // Hold the permit until the hash is complete, even if the request is cancelled.
        drop(permit);
        hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
    });
    let hashed = hashed.await.map_err(store::Error::inconsistent)?;
    Ok(hashed.map_err(store::Error::inconsistent)?)
}
