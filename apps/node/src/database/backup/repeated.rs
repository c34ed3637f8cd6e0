//! Errors of Postgres that every repetition of a dump meets again, for example because its login lacks a privilege.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::{BackupError, Result};

/// The number of equal errors after which an operation fails. Until then, the dump is repeated, because the node may
/// still repair the privileges of its logins.
const MAX_ERRORS: u32 = 8;
/// The errors that other sessions or the server's machine cause. They are never permanent. The node compares messages,
/// because `pg_dump` prints no codes.
const TRANSIENT: [&str; 10] = [
    "canceling statement due to ",
    "deadlock detected",
    "out of shared memory",
    "out of memory",
    "out of file descriptors",
    "No space left on device",
    "Too many open files",
    "Cannot allocate memory",
    "could not resize shared memory segment",
    "Input/output error",
];

/// The last error of each operation, and how often it occurred.
pub struct RepeatedErrors {
    /// The shortest time since the first of the equal errors. They can follow each other within a second.
    min_time: Duration,
    errors: Mutex<HashMap<String, RepeatedError>>,
}

/// Equal errors.
struct RepeatedError {
    message: String,
    count: u32,
    /// When the first of them occurred.
    since: Instant,
}

impl RepeatedErrors {
    pub fn new(min_time: Duration) -> Self {
        Self { min_time, errors: Mutex::default() }
    }

    /// Makes the error of a dump permanent if the same error of Postgres occurred often enough and for long enough.
    pub fn record<T>(&self, operation: &str, made: Result<T>) -> Result<T> {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(BackupError::Server(message)) = &made else {
            // Other errors in between, such as a lost connection, do not reset the count.
            if made.is_ok() {
                errors.remove(operation);
            }
            return made;
        };
        if TRANSIENT.iter().any(|transient| message.contains(transient)) {
            return made;
        }
        let last = errors.entry(operation.to_owned()).or_insert_with(|| RepeatedError::new(message));
        if last.message != *message {
            *last = RepeatedError::new(message);
        }
        last.count += 1;
        if last.count < MAX_ERRORS || last.since.elapsed() < self.min_time {
            return made;
        }
        let message = message.clone();
        errors.remove(operation);
        Err(BackupError::Unreadable(message))
    }
}

impl RepeatedError {
    fn new(message: &str) -> Self {
        Self { message: message.to_owned(), count: 0, since: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[test]
    fn equal_errors_become_permanent() {
        let errors = RepeatedErrors::new(Duration::ZERO);
        let fail = |operation: &str, error: BackupError| {
            errors.record(operation, Err::<(), _>(error)).unwrap_err().is_permanent()
        };
        let record = |operation: &str, message: &str| fail(operation, BackupError::Server(message.to_owned()));
        for _ in 1..MAX_ERRORS {
            assert!(!record("opn_1", "permission denied for table t"));
            assert!(!record("opn_2", "canceling statement due to lock timeout"));
            assert!(!record("opn_4", "cache lookup failed for type 1"));
        }
        assert!(
            !fail("opn_1", BackupError::Dump("the connection failed or ended".to_owned()))
                && !record("opn_3", "permission denied for table t")
        );
        assert!(!record("opn_2", "canceling statement due to lock timeout"));
        assert!(record("opn_1", "permission denied for table t"));
        assert!(!record("opn_1", "permission denied for table t"), "a new count");
        assert!(!record("opn_1", "permission denied for large object 1"));
        assert!(record("opn_4", "cache lookup failed for type 1"));
    }

    #[tokio::test(start_paused = true)]
    async fn equal_errors_within_a_short_time_are_not_permanent() {
        let errors = RepeatedErrors::new(Duration::from_secs(600));
        let record = || {
            let failed = Err::<(), _>(BackupError::Server("permission denied for table t".to_owned()));
            errors.record("opn_1", failed).unwrap_err().is_permanent()
        };
        for _ in 0..MAX_ERRORS * 2 {
            assert!(!record());
        }
        advance(Duration::from_secs(600)).await;
        assert!(record());
        assert!(!record(), "a new time");
    }
}
