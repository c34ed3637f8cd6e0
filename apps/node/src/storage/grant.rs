//! A project's permission to store objects.

use protocol::Storage as StoragePart;

/// The storage of one project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The project's id, for reports.
    pub project: String,
    /// Identifies the project's objects in the store and the index.
    pub prefix: String,
    pub quota_bytes: u64,
}

impl Grant {
    /// `None` if the prefix is not a single segment of a path of letters, digits and `_`. The control plane creates only
    /// such prefixes; the check keeps every object of a project below its prefix.
    pub fn new(project: &str, part: &StoragePart) -> Option<Self> {
        let StoragePart { prefix, quota_bytes } = part;
        let is_valid = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_valid.then(|| Self { project: project.to_owned(), prefix: prefix.clone(), quota_bytes: *quota_bytes })
    }
}
