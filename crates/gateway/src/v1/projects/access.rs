//! Access to a project's deployments.

use actix_web::web::Data;
use kernel::Code;
use projects::{AccessAuthorize, AccessBypass, AccessChange, AccessPolicy, Authorize, Projects};

use crate::authority::role::{Admin, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::authority::{InProject, Session};
use crate::http::{Body, Json, NoContent, Routes};
use crate::problem::Problem;
use crate::require::RequireCore;

const ACCESS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/access";
const BYPASS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/access/bypass";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("access", "Access to a project's deployments.");
    area.get("get", ACCESS, get).summary("Get the access policy of a project");
    area.put("set", ACCESS, set).summary("Set the access policy of a project");
    area.post("bypass_new", BYPASS, bypass_new)
        .summary("Create a key that bypasses the access policy, shown only once");
    area.delete("bypass_revoke", BYPASS, bypass_revoke).summary("Revoke the key that bypasses the access policy");
    area.post("authorize", "/v1/access/authorize", authorize)
        .summary("Authorize the caller at a hostname, and return the URL for the browser")
        .codes(&[&Code::FORBIDDEN, &Code::NOT_FOUND]);
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    _: RequireCore,
    projects: Data<Projects>,
) -> Result<Json<AccessPolicy>, Problem> {
    Ok(Json(projects.access(at.project.id).await?))
}

async fn set(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    projects: Data<Projects>,
    Body(change): Body<AccessChange>,
) -> Result<Json<AccessPolicy>, Problem> {
    Ok(Json(projects.access_set(&at.actor, &(&at.org).into(), at.project.id, change).await?))
}

async fn bypass_new(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    projects: Data<Projects>,
) -> Result<Json<AccessBypass>, Problem> {
    Ok(Json(projects.access_bypass_new(&at.actor, &(&at.org).into(), at.project.id).await?))
}

async fn bypass_revoke(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    projects: Data<Projects>,
) -> Result<NoContent, Problem> {
    projects.access_bypass_revoke(&at.actor, &(&at.org).into(), at.project.id).await?;
    Ok(NoContent)
}

async fn authorize(
    by: Session,
    _: RequireCore,
    projects: Data<Projects>,
    Body(authorize): Body<Authorize>,
) -> Result<Json<AccessAuthorize>, Problem> {
    Ok(Json(projects.access_authorize(by.user.id, authorize).await?))
}
