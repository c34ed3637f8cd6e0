//! Operations on the whole database.

use kernel::{OperationId, ProjectId, Time};
use serde::{Deserialize, Serialize};
use validator::Validate;

kernel::words! {
    /// The kind of an operation.
    pub enum OperationKind {
        /// Replaces the content of the database with that of a generation.
        RestoreGeneration = "restore_generation",
        /// Deletes the database.
        Delete = "delete",
        /// Moves the database away from its node. No route starts it yet.
        Evict = "evict",
        /// Restores the database on another node. No route starts it yet.
        Restore = "restore",
    } example RestoreGeneration
}

kernel::words! {
    /// The phase of an operation (specification, States, "Database operation").
    pub enum Phase {
        /// The node refuses logins and ends all sessions.
        Draining = "draining",
        /// The node stores a generation of the drained database.
        Sealing = "sealing",
        /// The node swaps or removes the database. The operation can no longer be aborted.
        Committing = "committing",
        /// The node allows logins again.
        Reactivating = "reactivating",
        /// The operation has ended.
        Done = "done",
    } example Draining
}

impl Phase {
    /// Returns the phase after this one in an operation of this kind.
    #[must_use]
    pub const fn next(self, kind: OperationKind) -> Self {
        match (self, kind) {
            (Self::Draining, _) => Self::Sealing,
            (Self::Sealing, _) => Self::Committing,
            (Self::Committing, OperationKind::Delete) | (Self::Reactivating | Self::Done, _) => Self::Done,
            (Self::Committing, _) => Self::Reactivating,
        }
    }
}

/// An operation on a project's database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({ "terminalCode": null })))]
pub struct Operation {
    pub id: OperationId,
    pub project_id: ProjectId,
    pub kind: OperationKind,
    pub phase: Phase,
    /// The reason why the operation ended without success: `aborted`, `restore_failed` or `delete_failed`. Null while
    /// it runs and after a success.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub terminal_code: Option<String>,
    pub created_at: Time,
    pub updated_at: Time,
}

/// An operation that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OperationStarted {
    pub operation_id: OperationId,
}

/// The confirmation of a deletion.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeleteRequest {
    /// The name of the project.
    #[cfg_attr(feature = "openapi", schema(example = "site"))]
    pub confirm: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletion_has_no_reactivation() {
        let phases = |kind| {
            let mut phases = vec![Phase::Draining];
            while let Some(&last) = phases.last().filter(|last| **last != Phase::Done) {
                phases.push(last.next(kind));
            }
            phases
        };
        assert_eq!(phases(OperationKind::RestoreGeneration), Phase::ALL);
        let deletion = [Phase::Draining, Phase::Sealing, Phase::Committing, Phase::Done];
        assert_eq!(phases(OperationKind::Delete), deletion);
    }
}
