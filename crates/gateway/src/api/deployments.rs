//! Deployments of a project.

use actix_web::web::Data;
use kernel::{Code, Page};
use projects::{Author, Deployment, Git, ProjectError, Projects, Rollback};

use crate::authority::InProject;
use crate::authority::role::{Member, Viewer};
use crate::authority::scope::{Deploy, ProjectRead};
use crate::http::{Body, Created, Header, Json, Pages, Routes, Upload};
use crate::problem::Problem;

const DEPLOYMENTS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/deployments";

pub(super) fn routes(routes: &mut Routes) {
    routes.get(DEPLOYMENTS, list).summary("The deployments, newest first");
    routes
        .post(DEPLOYMENTS, create)
        .summary("Upload a bundle; it is live at once")
        .codes(&[&ProjectError::INVALID_BUNDLE, &Code::PAYLOAD_TOO_LARGE]);
    routes
        .post("/v1/orgs/{orgSlug}/projects/{projectName}/rollback", rollback)
        .summary("Make an older deployment live again");
}

async fn list(
    at: InProject<Viewer, ProjectRead>,
    projects: Data<Projects>,
    Pages(pages): Pages<i32>,
) -> Result<Json<Page<Deployment>>, Problem> {
    Ok(Json(projects.deployments(at.project.id, &pages).await?))
}

async fn create(
    at: InProject<Member, Deploy>,
    projects: Data<Projects>,
    header: Header,
    upload: Upload,
) -> Result<Created<Deployment>, Problem> {
    let by = Author { user_id: at.user.id, subject: at.user.subject };
    let body = upload.into_stream();
    Ok(Created(projects.deploy(&at.actor, &(&at.org).into(), at.project.id, (by, provenance(&header)), body).await?))
}

async fn rollback(
    at: InProject<Member, Deploy>,
    projects: Data<Projects>,
    Body(to): Body<Rollback>,
) -> Result<Json<Deployment>, Problem> {
    Ok(Json(projects.rollback(&at.actor, &(&at.org).into(), at.project.id, to).await?))
}

/// Where the bundle was made from (specification, "Projects and deployments", rule 3).
fn provenance(header: &Header) -> Git {
    let decoded = |name| header.get(name).and_then(crate::http::percent_decoded);
    Git::stated(
        header.get("x-svc-git-commit"),
        decoded("x-svc-git-message").as_deref(),
        decoded("x-svc-git-branch").as_deref(),
        header.get("x-svc-git-dirty"),
    )
}
