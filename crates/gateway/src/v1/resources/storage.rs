//! Object storage of a project.

use actix_web::web::Data;
use resources::{Resources, StorageStatus};

use crate::authority::InProject;
use crate::authority::role::{Admin, Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Json, NoContent, Routes};
use crate::problem::Problem;
use crate::require::RequireCore;

const STORAGE: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/storage";

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("storage", "Object storage of a project, which worker code uses as `env.storage`.");
    area.get("get", STORAGE, get).summary("Get the object storage of a project, with its usage");
    area.post("grant", STORAGE, grant)
        .summary("Enable the object storage of a project, or return the existing storage")
        .description("The binding `env.storage` appears within seconds, without a new deployment.");
    area.delete("revoke", STORAGE, revoke)
        .summary("Disable the object storage of a project, and keep its objects")
        .description(
            "The binding `env.storage` disappears within seconds. Enabling storage again returns the objects.",
        );
}

async fn get(
    at: InProject<Viewer, ProjectRead>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<Json<StorageStatus>, Problem> {
    Ok(Json(resources.storage((&at).into()).await?))
}

async fn grant(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<Json<StorageStatus>, Problem> {
    Ok(Json(resources.storage_grant(&at.actor, (&at).into()).await?))
}

async fn revoke(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.storage_revoke(&at.actor, (&at).into()).await?;
    Ok(NoContent)
}
