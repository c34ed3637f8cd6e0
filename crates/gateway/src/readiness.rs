//! The readiness probe of `/readyz`.

use kernel::{Code, Time, error_chain};
use store::Store;
use tokio::sync::Mutex;

use crate::problem::Problem;

/// The time for which the result of a probe is reused: one second.
const REUSE_MILLIS: i64 = 1000;

/// The result of the last probe of the database. Anyone may request `/readyz`, so concurrent requests share one probe,
/// and later ones reuse its result for a second.
#[derive(Default)]
pub struct Readiness {
    /// The last probe. The mutex is locked during a probe.
    last: Mutex<Option<Probe>>,
}

/// The result of a probe: the time at which it ended, and the reason if the service is not ready.
struct Probe {
    at: Time,
    result: Result<(), &'static str>,
}

impl Readiness {
    /// Checks that the database is reachable and migrated.
    ///
    /// # Errors
    /// Returns 503 with the reason if the service is not ready.
    pub(crate) async fn check(&self, store: &Store) -> Result<(), Problem> {
        let mut last = self.last.lock().await;
        let now = store.clock_rng().now();
        let result = match &*last {
            Some(Probe { at, result }) if (0..REUSE_MILLIS).contains(&(now.unix_millis() - at.unix_millis())) => {
                *result
            }
            _ => {
                let result = probe(store).await;
                *last = Some(Probe { at: store.clock_rng().now(), result });
                result
            }
        };
        result.map_err(|reason| Problem::new(&Code::UNAVAILABLE, reason))
    }
}

async fn probe(store: &Store) -> Result<(), &'static str> {
    let mut connection = store.connection().await.map_err(|error| {
        tracing::warn!(error = %error_chain(&error), "failed to connect to the database");
        "the database is not reachable; see the log"
    })?;
    match store::migrations::pending(&mut connection).await {
        Ok(pending) if pending.is_empty() => Ok(()),
        Ok(_) => Err("the database is not migrated; run `xtask migrate up`"),
        Err(error) => {
            tracing::warn!(error = %error_chain(&error), "failed to read the applied migrations");
            Err("the applied migrations cannot be read; see the log")
        }
    }
}
