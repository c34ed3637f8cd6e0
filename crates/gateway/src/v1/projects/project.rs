//! Projects.

use actix_web::web::Data;
use kernel::{Page, ProjectId};
use orgs::Orgs;
use projects::{NewProject, Project, ProjectChange, ProjectDeletion, ProjectError, Projects};

use super::compose::{ProjectDetail, ProjectOverview};
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::authority::{InOrg, InOrgPart, InProject};
use crate::http::{Body, Created, Json, NoContent, Pages, Routes};
use crate::problem::Problem;

const PROJECT: &str = "/v1/orgs/{orgSlug}/projects/{projectName}";

/// Notifications on a project's first page.
const RECENT: u16 = 5;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("projects", "Projects.");
    area.get("list", "/v1/orgs/{orgSlug}/projects", list).summary("The projects of an organization");
    area.post("create", "/v1/orgs/{orgSlug}/projects", create)
        .summary("Create a project")
        .codes(&[&ProjectError::NAME_TAKEN, &ProjectError::HOSTNAME_TAKEN, &ProjectError::LIMIT])
        .leads_to("projects.get", "projectName", "/name")
        .leads_to("projects.delete", "projectName", "/name")
        .leads_to("deployments.create", "projectName", "/name");
    area.get("get", PROJECT, get).summary("One project, with what it serves and where");
    area.patch("rename", PROJECT, rename)
        .summary("Rename a project; its default hostname follows")
        .codes(&[&ProjectError::NAME_TAKEN, &ProjectError::HOSTNAME_TAKEN]);
    area.delete("delete", PROJECT, delete)
        .summary("Delete a project; its name and hostnames are free at once")
        .codes(&[&ProjectError::CONFIRM_MISMATCH]);
    area.get("overview", "/v1/orgs/{orgSlug}/projects/{projectName}/overview", overview)
        .summary("The first page of a project: what serves, what happened");
}

async fn list(
    at: InOrgPart<Viewer, ProjectRead>,
    projects: Data<Projects>,
    Pages(pages): Pages<ProjectId>,
) -> Result<Json<Page<Project>>, Problem> {
    Ok(Json(projects.list(&(&at.org).into(), at.projects.as_deref(), &pages).await?))
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
    Ok(Json(ProjectDetail::new(detail, at.project.granted)))
}

async fn overview(
    at: InProject<Viewer, ProjectRead>,
    projects: Data<Projects>,
    orgs: Data<Orgs>,
) -> Result<Json<ProjectOverview>, Problem> {
    let overview = projects.overview(&(&at.org).into(), at.project.id).await?;
    let notifications = orgs.notifications_of(at.org.id, &at.project.name, RECENT).await?;
    Ok(Json(ProjectOverview::new(overview, at.project.granted, notifications)))
}

async fn rename(
    at: InProject<Admin, ProjectWrite>,
    projects: Data<Projects>,
    Body(change): Body<ProjectChange>,
) -> Result<Json<ProjectDetail>, Problem> {
    let detail = projects.rename(&at.actor, &(&at.org).into(), at.project.id, change).await?;
    Ok(Json(ProjectDetail::new(detail, at.project.granted)))
}

async fn delete(
    at: InProject<Admin, ProjectWrite>,
    projects: Data<Projects>,
    Body(deletion): Body<ProjectDeletion>,
) -> Result<NoContent, Problem> {
    projects.delete(&at.actor, &(&at.org).into(), at.project.id, deletion).await?;
    Ok(NoContent)
}
