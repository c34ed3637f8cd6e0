//! Keys of objects.

use super::error::{Result, StorageError};

/// The longest key in bytes of UTF-8.
const MAX_KEY_BYTES: usize = 1024;

/// A valid key (spec/runtime.md, `env.storage`): 1 to 1,024 bytes without NUL and without a segment `.` or `..`. A key
/// is an exact string: it is never normalized, and no part of it becomes a path in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Checks a key.
    ///
    /// # Errors
    /// Returns [`StorageError::InvalidKey`] if the key breaks a rule.
    pub fn parse(key: String) -> Result<Self> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(StorageError::InvalidKey("A key must have 1 to 1,024 bytes in UTF-8."));
        }
        if key.contains('\0') {
            return Err(StorageError::InvalidKey("A key must not contain U+0000."));
        }
        if key.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(StorageError::InvalidKey("A key must not have a segment `.` or `..` between slashes."));
        }
        Ok(Self(key))
    }

    pub fn into_string(self) -> String {
        self.0
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_exact_strings_within_the_rules() {
        let longest = "é".repeat(512);
        for key in ["a", "a/", "/", "//", "a//b", "%2e%2e", "...", "a/...", ".a/b.", "\u{7f}\n", "🦀", &longest] {
            assert_eq!(Key::parse(key.to_owned()).unwrap().as_str(), key);
        }
        let too_long = format!("{longest}a");
        for key in ["", ".", "..", "a/.", "../a", "a/../b", "/./", "a\0b", &too_long] {
            assert!(matches!(Key::parse(key.to_owned()), Err(StorageError::InvalidKey(_))), "{key:?}");
        }
    }
}
