//! Deployments of a project.

use std::str::FromStr;

use actix_web::web::Data;
use kernel::{Code, Page};
use projects::{Author, Deployment, Git, ProjectError, Projects, Rollback, Source};

use crate::authority::InProject;
use crate::authority::role::{Member, Viewer};
use crate::authority::scope::{Deploy, ProjectRead};
use crate::http::{
    Body, Created, Json, Pagination, Path, RequestHeaders, Routes, Upload, path_parameters, upload_problem,
};
use crate::problem::Problem;

const DEPLOYMENTS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/deployments";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("deployments", "Deployments of a project.");
    area.get("list", DEPLOYMENTS, list).summary("List deployments, newest first");
    area.post("create", DEPLOYMENTS, create)
        .summary("Upload a bundle, and make it live")
        .codes(&[&ProjectError::INVALID_BUNDLE, &ProjectError::BUNDLE_BYTES_LIMIT, &Code::PAYLOAD_TOO_LARGE])
        .header("X-Svc-Git-Commit", "The commit that the bundle was built from, in hexadecimal.")
        .header("X-Svc-Git-Message", "The first line of the commit's message, percent-encoded.")
        .header("X-Svc-Git-Branch", "The branch that the bundle was built on, percent-encoded.")
        .header("X-Svc-Git-Dirty", "`true` if files differed from the commit, otherwise `false`.")
        .link("deployments.get", "version", "/version");
    area.get("get", "/v1/orgs/{orgSlug}/projects/{projectName}/deployments/{version}", get)
        .summary("Get a deployment, with its state at the home node");
    area.post("rollback", "/v1/orgs/{orgSlug}/projects/{projectName}/rollback", rollback)
        .summary("Make an older deployment live again");
}

async fn list(
    at: InProject<Viewer, ProjectRead>,
    projects: Data<Projects>,
    Pagination(pages): Pagination<i32>,
) -> Result<Json<Page<Deployment>>, Problem> {
    Ok(Json(projects.deployments(at.project.id, &pages).await?))
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    Path(Version(version)): Path<Version>,
    projects: Data<Projects>,
) -> Result<Json<Deployment>, Problem> {
    Ok(Json(projects.deployment(at.project.id, version).await?))
}

async fn create(
    at: InProject<Member, Deploy>,
    projects: Data<Projects>,
    header: RequestHeaders,
    upload: Upload,
) -> Result<Created<Deployment>, Problem> {
    let created_by = Author { user_id: at.user.id, subject: at.user.subject };
    let source = Source { created_by, git: provenance(&header), push: None };
    let body = upload.into_stream();
    let deployed = projects.deploy(&at.actor, &(&at.org).into(), at.project.id, source, body).await;
    Ok(Created(deployed.map_err(upload_problem)?))
}

async fn rollback(
    at: InProject<Member, Deploy>,
    projects: Data<Projects>,
    Body(to): Body<Rollback>,
) -> Result<Json<Deployment>, Problem> {
    Ok(Json(projects.rollback(&at.actor, &(&at.org).into(), at.project.id, to).await?))
}

/// A version in a path. It must be in canonical form.
struct Version(i32);

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().ok().filter(|version: &i32| version.to_string() == text).map(Self).ok_or(())
    }
}

path_parameters! {
    Version as i32: "The deployment's version, counted from 1 in each project.", 1;
}

/// Returns the Git commit of the bundle (specification, "Projects and deployments", rule 3).
fn provenance(header: &RequestHeaders) -> Git {
    let decoded = |name| header.get(name).and_then(crate::http::percent_decoded);
    Git::from_headers(
        header.get("x-svc-git-commit"),
        decoded("x-svc-git-message").as_deref(),
        decoded("x-svc-git-branch").as_deref(),
        header.get("x-svc-git-dirty"),
    )
}
