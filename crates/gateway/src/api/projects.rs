//! Projects.

use actix_web::web::Data;
use kernel::{Page, ProjectId};
use projects::{NewProject, Project, ProjectDetail, ProjectError, Projects};

use crate::authority::role::{Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::authority::{InOrg, InOrgPart, InProject};
use crate::http::{Body, Created, Json, Pages, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    routes.get("/v1/orgs/{orgSlug}/projects", list).summary("The projects of an organization");
    routes.post("/v1/orgs/{orgSlug}/projects", create).summary("Create a project").codes(&[
        &ProjectError::NAME_TAKEN,
        &ProjectError::HOSTNAME_TAKEN,
        &ProjectError::LIMIT,
    ]);
    routes.get("/v1/orgs/{orgSlug}/projects/{projectName}", get).summary("One project, with what it serves and where");
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
    Ok(Json(projects.detail(&(&at.org).into(), at.project.id).await?))
}
