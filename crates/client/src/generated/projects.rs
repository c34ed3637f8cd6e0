//! Projects.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{AccessMode, Deployment, Hostname, Notification, Resources, Time};
use crate::{Call, Client, Page, Paging, words};

/// Who may see a project, in short.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Access {
    pub mode: AccessMode,
}

/// A backup of a project's database.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    pub created_at: Time,
    pub epoch: i64,
    pub kind: GenerationKind,
    pub offsite_key: String,
    pub seq: i64,
    pub sha256: String,
    pub size_bytes: i64,
}

words! {
    pub enum GenerationKind {
        Scheduled = "scheduled",
        PreRestore = "pre_restore",
        Final = "final",
    }
}

/// The project to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewProject {
    pub name: ProjectName,
}

/// Where a project is served from, in short.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Raised whenever the project's data moves or is restored.
    pub epoch: i64,
    pub state: String,
}

/// A project.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Project {
    pub created_at: Time,
    /// The hostname that came with it.
    pub hostname: String,
    pub id: ProjectId,
    pub name: ProjectName,
    /// The organization's slug.
    pub org: String,
}

/// What is to change of a project.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectChange {
    /// The default hostname follows it.
    pub name: ProjectName,
}

/// The deletion of a project, said twice.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDeletion {
    /// The project's name.
    pub confirm: String,
}

/// One project, with what it serves and where.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDetail {
    pub access: Access,
    pub created_at: Time,
    /// The hostname that came with it.
    pub hostname: String,
    pub hostnames: Vec<Hostname>,
    pub id: ProjectId,
    /// Null before the first deployment.
    pub live: Option<Deployment>,
    pub name: ProjectName,
    /// The organization's slug.
    pub org: String,
    /// Null before the first deployment.
    pub placement: Option<Placement>,
    /// Which of the optional resources are granted.
    pub resources: Resources,
}

/// an id that starts with prj_
pub type ProjectId = String;

/// 1 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit
pub type ProjectName = String;

/// A project's first page, with what the organization was told about it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectOverview {
    /// The last five.
    pub deployments: Vec<Deployment>,
    /// The database's most recent one; null without a database.
    pub last_backup: Option<Generation>,
    /// Null before the first deployment.
    pub live: Option<Deployment>,
    /// The last five.
    pub notifications: Vec<Notification>,
    pub resources: ResourceStates,
}

pub type ProjectPage = Page<Project>;

/// Whether an optional resource is asked for, and whether it is there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceState {
    /// By the manifest of the live deployment.
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
        self.operation("projects.create", Method::POST, &["v1", "orgs", org_slug, "projects"]).once().json(body)
    }

    /// Delete a project; its name and hostnames are free at once
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_delete(&self, org_slug: &str, project_name: &str, body: &ProjectDeletion) -> Call<()> {
        self.operation("projects.delete", Method::DELETE, &["v1", "orgs", org_slug, "projects", project_name])
            .json(body)
    }

    /// One project, with what it serves and where
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_get(&self, org_slug: &str, project_name: &str) -> Call<ProjectDetail> {
        self.operation("projects.get", Method::GET, &["v1", "orgs", org_slug, "projects", project_name])
    }

    /// The projects of an organization
    ///
    /// `GET /v1/orgs/{orgSlug}/projects`
    pub fn projects_list(&self, org_slug: &str, query: &Paging) -> Call<ProjectPage> {
        self.operation("projects.list", Method::GET, &["v1", "orgs", org_slug, "projects"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// The first page of a project: what serves, what happened
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/overview`
    pub fn projects_overview(&self, org_slug: &str, project_name: &str) -> Call<ProjectOverview> {
        self.operation(
            "projects.overview",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "overview"],
        )
    }

    /// Rename a project; its default hostname follows
    ///
    /// `PATCH /v1/orgs/{orgSlug}/projects/{projectName}`
    pub fn projects_rename(&self, org_slug: &str, project_name: &str, body: &ProjectChange) -> Call<ProjectDetail> {
        self.operation("projects.rename", Method::PATCH, &["v1", "orgs", org_slug, "projects", project_name]).json(body)
    }
}
