//! The project of a notification.

use crate::ProjectId;

/// A project and its current name. The id identifies the project when it is renamed, and when another project gets the
/// name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProject {
    pub id: ProjectId,
    pub name: String,
}

/// The name.
impl std::fmt::Display for NamedProject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&self.name)
    }
}
