//! Projects.

use actix_web::web::Data;
use databases::Databases;
use kernel::{Page, ProjectId};
use orgs::Orgs;
use projects::{NewProject, Project, ProjectChange, ProjectDeletion, ProjectError, Projects};

use super::compose::{ProjectDetail, ProjectOverview};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::authority::{InOrg, InOrgFiltered, InProject};
use crate::http::{Body, Created, Json, NoContent, Pagination, Routes};
use crate::problem::Problem;

const PROJECT: &str = "/v1/orgs/{orgSlug}/projects/{projectName}";

/// The number of notifications in a project's overview.
const MAX_NOTIFICATIONS: u16 = 5;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("projects", "Projects.");
    area.get("list", "/v1/orgs/{orgSlug}/projects", list).summary("List the projects of an organization");
    area.post("create", "/v1/orgs/{orgSlug}/projects", create)
        .summary("Create a project")
        .codes(&[
            &ProjectError::NAME_TAKEN,
            &ProjectError::HOSTNAME_TAKEN,
            &ProjectError::LIMIT,
            &ProjectError::DELETED_LIMIT,
        ])
        .link("projects.get", "projectName", "/name")
        .link("projects.delete", "projectName", "/name")
        .link("deployments.create", "projectName", "/name");
    area.get("get", PROJECT, get).summary("Get a project with its live deployment, hostnames and placement");
    area.patch("rename", PROJECT, rename)
        .summary("Rename a project and its default hostname")
        .codes(&[&ProjectError::NAME_TAKEN, &ProjectError::HOSTNAME_TAKEN]);
    area.delete("delete", PROJECT, delete)
        .summary("Delete a project, and release its name and hostnames")
        .codes(&[&ProjectError::CONFIRM_MISMATCH]);
    area.get("overview", "/v1/orgs/{orgSlug}/projects/{projectName}/overview", overview)
        .summary("Get the overview of a project: its live deployment and recent events");
}

async fn list(
    at: InOrgFiltered<Viewer, ProjectRead, ProjectId>,
    projects: Data<Projects>,
    Pagination(pages): Pagination<ProjectId>,
) -> Result<Json<Page<Project>>, Problem> {
    Ok(Json(projects.list(&(&at.org).into(), at.targets.as_deref(), &pages).await?))
}

async fn create(
    at: InOrg<Member, ProjectWrite>,
    projects: Data<Projects>,
    Body(new): Body<NewProject>,
) -> Result<Created<Project>, Problem> {
    Ok(Created(projects.create(&at.actor, &(&at.org).into(), new).await?))
}

async fn get(at: InProject<Viewer, ProjectRead>, projects: Data<Projects>) -> Result<Json<ProjectDetail>, Problem> {
    let detail = projects.detail(&(&at.org).into(), at.project.id).await?;
    Ok(Json(ProjectDetail::new(detail, at.project.granted_resources)))
}

async fn overview(
    at: InProject<Viewer, ProjectRead>,
    projects: Data<Projects>,
    databases: Data<Databases>,
    orgs: Data<Orgs>,
) -> Result<Json<ProjectOverview>, Problem> {
    let overview = projects.overview(&(&at.org).into(), at.project.id).await?;
    let has_database = at.project.granted_resources.database;
    let last_backup = if has_database { databases.last_generation(at.project.id).await? } else { None };
    let notifications = orgs.notifications_of(at.org.id, at.project.id, MAX_NOTIFICATIONS).await?;
    Ok(Json(ProjectOverview::new(overview, last_backup, at.project.granted_resources, notifications)))
}

async fn rename(
    at: InProject<Admin, ProjectWrite>,
    projects: Data<Projects>,
    Body(change): Body<ProjectChange>,
) -> Result<Json<ProjectDetail>, Problem> {
    let detail = projects.rename(&at.actor, &(&at.org).into(), at.project.id, change).await?;
    Ok(Json(ProjectDetail::new(detail, at.project.granted_resources)))
}

async fn delete(
    at: InProject<Admin, ProjectWrite>,
    projects: Data<Projects>,
    Body(deletion): Body<ProjectDeletion>,
) -> Result<NoContent, Problem> {
    projects.delete(&at.actor, &(&at.org).into(), at.project.id, deletion).await?;
    Ok(NoContent)
}
