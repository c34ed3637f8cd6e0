//! A project's permission to store objects.

use protocol::Storage as StoragePart;

use super::error::{Result, StorageError};

/// The storage of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The owner of the project, whose permits for large objects the puts use.
    pub owner: String,
    /// The project's id, for reports.
    pub project: String,
    /// Identifies the project's objects in the store and the index.
    pub prefix: String,
    pub quota_bytes: u64,
}

impl Grant {
    /// Creates a grant. Returns `None` if the prefix is not a single path segment of letters, digits and `_`. The
    /// control plane creates only such prefixes; the check ensures that every object of a project stays below its
    /// prefix.
    pub fn new(owner: &str, project: &str, part: &StoragePart) -> Option<Self> {
        let StoragePart { prefix, quota_bytes } = part;
        is_prefix(prefix).then(|| Self {
            owner: owner.to_owned(),
            project: project.to_owned(),
            prefix: prefix.clone(),
            quota_bytes: *quota_bytes,
        })
    }
}

/// Returns whether a text is a single path segment of letters, digits and `_`.
pub fn is_prefix(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the current grant of a project, or `None` after it was revoked.
pub trait CurrentGrant: Fn() -> Option<Grant> + Send + Sync + 'static {
    /// Returns the current grant, if it still has this prefix.
    ///
    /// # Errors
    /// Returns [`StorageError::NotGranted`] otherwise.
    fn of_prefix(&self, prefix: &str) -> Result<Grant> {
        self().filter(|grant| grant.prefix == prefix).ok_or(StorageError::NotGranted)
    }
}

impl<T: Fn() -> Option<Grant> + Send + Sync + 'static> CurrentGrant for T {}
