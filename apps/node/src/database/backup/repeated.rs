//! Errors of Postgres that every repetition of a dump meets again, for example because its login lacks a privilege.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::error::{BackupError, Result};

/// The number of equal errors after which an operation fails. Until then, the dump is repeated, because the node may
/// still repair the privileges of its logins.
const MAX_ERRORS: u32 = 8;
/// The errors that other sessions cause. They are never permanent. The node compares messages, because `pg_dump` prints
/// no codes.
const TRANSIENT: [&str; 4] =
    ["canceling statement due to ", "deadlock detected", "out of shared memory", "No space left on device"];

/// The last error of each operation, and how often it occurred.
#[derive(Default)]
pub struct RepeatedErrors(Mutex<HashMap<String, (String, u32)>>);

impl RepeatedErrors {
    /// Makes the error of a dump permanent if the same error of Postgres occurred often enough.
    pub fn record<T>(&self, operation: &str, made: Result<T>) -> Result<T> {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let last = errors.entry(operation.to_owned()).or_default();
        if last.0 != *message {
            *last = (message.clone(), 0);
        }
        last.1 += 1;
        if last.1 < MAX_ERRORS {
            return made;
        }
        let (message, _) = errors.remove(operation).unwrap_or_default();
        Err(BackupError::Unreadable(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_errors_become_permanent() {
        let errors = RepeatedErrors::default();
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
}
