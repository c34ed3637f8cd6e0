//! Denials: dumps that fail because their login lacks a privilege. A repeated dump fails in the same way.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::error::{BackupError, Result};

/// The number of equal denials after which an operation fails. Until then, the dump is repeated, because the node may
/// still repair the privileges of its logins.
const MAX_DENIALS: u32 = 8;
/// The message of SQLSTATE 42501. The node compares messages, because `pg_dump` prints no codes.
const DENIED: &str = "permission denied";

/// The last denial of each operation, and how often it occurred.
#[derive(Default)]
pub struct Denials(Mutex<HashMap<String, (String, u32)>>);

impl Denials {
    /// Makes the error of a dump permanent if the same denial occurred often enough.
    pub fn record_denial<T>(&self, operation: &str, made: Result<T>) -> Result<T> {
        let mut denials = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(BackupError::Dump(message)) = &made else {
            // Other errors in between, such as a restart of Postgres, do not reset the count.
            if made.is_ok() {
                denials.remove(operation);
            }
            return made;
        };
        if !message.starts_with(DENIED) {
            return made;
        }
        let denial = denials.entry(operation.to_owned()).or_default();
        if denial.0 != *message {
            *denial = (message.clone(), 0);
        }
        denial.1 += 1;
        if denial.1 < MAX_DENIALS {
            return made;
        }
        let (message, _) = denials.remove(operation).unwrap_or_default();
        Err(BackupError::Denied(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_denials_become_permanent() {
        let denials = Denials::default();
        let record_denial = |operation: &str, message: &str| {
            let error =
                denials.record_denial(operation, Err::<(), _>(BackupError::Dump(message.to_owned()))).unwrap_err();
            error.is_permanent()
        };
        for _ in 1..MAX_DENIALS {
            assert!(!record_denial("opn_1", "permission denied for table t"));
            assert!(!record_denial("opn_2", "canceling statement due to lock timeout"));
        }
        assert!(
            !record_denial("opn_1", "the connection failed or ended")
                && !record_denial("opn_3", "permission denied for table t")
        );
        assert!(!record_denial("opn_2", "canceling statement due to lock timeout"));
        assert!(record_denial("opn_1", "permission denied for table t"));
        assert!(!record_denial("opn_1", "permission denied for table t"), "a new count");
        assert!(!record_denial("opn_1", "permission denied for large object 1"));
    }
}
