//! Limits that prevent abuse and do not depend on a plan.

use serde::Deserialize;

/// The limits of a user, of an organization and of a project (contract section 1, "Plan limits"); settings of the server with these
/// defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AbuseLimits {
    /// Live personal access tokens of a user.
    pub tokens_per_user: u32,
    /// Invitation mails of an organization in 24 hours.
    pub invite_mails_per_org: u32,
    /// Invitation mails that a user causes in 24 hours, over all organizations.
    pub invite_mails_per_user: u32,
    /// Restores of a project's database that start in 24 hours.
    pub database_restores_per_project: u32,
    /// Exports of a project's database that start in 24 hours.
    pub database_exports_per_project: u32,
    /// Deletions of a project's database that start in 24 hours, and databases that are enabled in 24 hours, together.
    pub database_changes_per_project: u32,
}

impl Default for AbuseLimits {
    fn default() -> Self {
        Self {
            tokens_per_user: 100,
            invite_mails_per_org: 100,
            invite_mails_per_user: 200,
            database_restores_per_project: 10,
            database_exports_per_project: 20,
            database_changes_per_project: 20,
        }
    }
}
