//! Limits that prevent abuse and do not depend on a plan.

use serde::Deserialize;

/// Limits on users, organizations and projects (contract section 1, "Plan limits"). They are settings of the server;
/// these are the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AbuseLimits {
    /// Maximum number of valid personal access tokens of a user.
    pub tokens_per_user: u32,
    /// Maximum number of SSH keys of a user.
    pub ssh_keys_per_user: u32,
    /// Maximum number of organizations that a user created, without the personal one.
    pub orgs_per_user: u32,
    /// Maximum number of invitation mails that an organization sends in 24 hours.
    pub invite_mails_per_org: u32,
    /// Maximum number of invitation mails that a user causes in 24 hours, over all organizations.
    pub invite_mails_per_user: u32,
    /// Maximum number of new idempotency keys of a user in any 24 hours, over all credentials. Half of them can be used
    /// in one burst.
    pub idempotency_keys_per_user: u32,
    /// Maximum number of notification mails to an address in any hour, over all organizations of the same creator. Half
    /// of them can be sent in one burst.
    pub notification_mails_per_recipient: u32,
    /// Number of projects that an organization may delete in 30 days. At this number, it cannot create further ones.
    pub deleted_projects_per_org: u32,
    /// Number of repositories that an organization may delete in 30 days, with those of deleted projects. At this
    /// number, it cannot create further ones.
    pub deleted_repositories_per_org: u32,
    /// Maximum number of deployments of a project in 24 hours.
    pub deployments_per_project: u32,
    /// Maximum number of restores of a project's database that start in 24 hours.
    pub database_restores_per_project: u32,
    /// Maximum number of exports of a project's database that start in 24 hours.
    pub database_exports_per_project: u32,
    /// Maximum number of changes of a project's database that start in 24 hours. Each deletion and each activation is a
    /// change.
    pub database_changes_per_project: u32,
    /// Maximum number of requests to the registrar that an organization causes in any hour. Half of them can be made in
    /// one burst.
    pub registrar_requests_per_org: u32,
}

impl Default for AbuseLimits {
    fn default() -> Self {
        Self {
            tokens_per_user: 100,
            ssh_keys_per_user: 100,
            orgs_per_user: 250,
            invite_mails_per_org: 100,
            invite_mails_per_user: 200,
            idempotency_keys_per_user: 10_000,
            notification_mails_per_recipient: 60,
            deleted_projects_per_org: 300,
            deleted_repositories_per_org: 3_000,
            deployments_per_project: 2_000,
            database_restores_per_project: 10,
            database_exports_per_project: 20,
            database_changes_per_project: 20,
            registrar_requests_per_org: 200,
        }
    }
}
