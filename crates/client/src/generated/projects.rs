//! Projects.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{AccessMode, Deployment, Generation, Hostname, Notification, ProjectId, Resources, Time};
use crate::{Call, Client, Page, Paging};

/// The access mode of a project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    pub mode: AccessMode,
}

/// A project to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewProject {
    pub name: ProjectName,
}

/// The placement of a project on a node.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Increases whenever the project's data moves or is restored.
    pub epoch: i64,
    pub state: String,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    pub created_at: Time,
    /// The default hostname.
    pub hostname: String,
    pub id: ProjectId,
    pub name: ProjectName,
    /// The organization's slug.
    pub org: String,
}

/// A change of a project.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectChange {
    /// The new name. The default hostname changes with the name.
    pub name: ProjectName,
}

/// A confirmed deletion of a project.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDeletion {
    /// The project's name. Any other text is `confirm_mismatch`, whatever its length.
    pub confirm: String,
}

/// A project with its live deployment, hostnames and placement.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDetail {
    pub access: Access,
    pub created_at: Time,
    /// The default hostname.
    pub hostname: String,
    pub hostnames: Vec<Hostname>,
    pub id: ProjectId,
    /// The live deployment. Null before the first deployment.
    pub live: Option<Deployment>,
    pub name: ProjectName,
    /// The organization's slug.
    pub org: String,
    /// The placement. Null before the first deployment, unless the project has a database.
    pub placement: Option<Placement>,
    /// The optional resources that are granted.
    pub resources: Resources,
}

/// 1 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
pub type ProjectName = String;

/// The overview of a project, with its notifications.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectOverview {
    /// The five latest deployments.
    pub deployments: Vec<Deployment>,
    /// The latest backup of the database. Null if the project has no database or no backup.
    pub last_backup: Option<Generation>,
    /// The live deployment. Null before the first deployment.
    pub live: Option<Deployment>,
    /// The five latest notifications.
    pub notifications: Vec<Notification>,
    pub resources: ResourceStates,
}

pub type ProjectPage = Page<Project>;

/// Whether an optional resource is declared, and whether it is granted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceState {
    /// Whether the manifest of the live deployment declares the resource.
    pub declared: bool,
    pub granted: bool,
}

/// The state of each optional resource.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStates {
    pub ai: ResourceState,
    pub auth: ResourceState,
    pub database: ResourceState,
    pub email: ResourceState,
    pub storage: ResourceState,
}

impl Client {
    /// Create a project
    ///
    /// `POST /v1/orgs/{orgSlug}/projects`
    pub fn projects_create(&self, org_slug: &str, body: &NewProject) -> Call<Project> {
        self.operation("projects.create", Method::POST, &["v1", "orgs", org_slug, "projects"]).idempotent().json(body)
    }

    /// Delete a project, and release its name and hostnames
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_delete(&self, org_slug: &str, project_name: &str, body: &ProjectDeletion) -> Call<()> {
        self.operation("projects.delete", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name])
            .json(body)
    }

    /// Get a project with its live deployment, hostnames and placement
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_get(&self, org_slug: &str, project_name: &str) -> Call<ProjectDetail> {
        self.operation("projects.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name])
    }

    /// List the projects of an organization
    ///
    /// `GET /v1/orgs/{orgSlug}/projects`
    pub fn projects_list(&self, org_slug: &str, query: &Paging) -> Call<ProjectPage> {
        self.operation("projects.list", Method::GET, &["v1", "orgs", org_slug, "projects"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// Get the overview of a project: its live deployment and recent events
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/overview`
    pub fn projects_overview(&self, org_slug: &str, project_name: &str) -> Call<ProjectOverview> {
        self.operation(
            "projects.overview",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "overview"],
        )
    }

    /// Rename a project and its default hostname
    ///
    /// `PATCH /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_rename(&self, org_slug: &str, project_name: &str, body: &ProjectChange) -> Call<ProjectDetail> {
        self.operation("projects.rename", Method::PATCH, &["v1", "orgs", org_slug, "projects", project_name]).json(body)
    }
}
