//! Hashing the shared password of a project (Argon2id, RFC 9106, in the crate's recommended parameters).

use std::sync::LazyLock;

use argon2::{Argon2, PasswordHasher as _};
use kernel::World;
use tokio::sync::Semaphore;

use super::Result;

/// Hashes worked on at once: each takes 19 MiB and a core for some 25 ms. More wait for their turn.
static PLACES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));

/// The password's hash, as a PHC string.
pub(super) async fn hash(world: &World, password: String) -> Result<String> {
    let salt = world.bytes::<16>();
    let place = PLACES.acquire().await.map_err(store::Error::inconsistent)?;
    let hashed = tokio::task::spawn_blocking(move || {
        let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
        // Taken until here, whatever becomes of who asked for it.
        drop(place);
        hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
    });
    let hashed = hashed.await.map_err(store::Error::inconsistent)?;
    Ok(hashed.map_err(store::Error::inconsistent)?)
}
