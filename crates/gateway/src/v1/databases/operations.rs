//! Operations in progress, such as a restore.

use actix_web::web::Data;
use databases::{DatabaseError, Databases, Operation};
use kernel::OperationId;

use crate::authority::InProject;
use crate::authority::role::{Admin, Member};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Area, Json, Path, path_parameters};
use crate::problem::Problem;
use crate::require::RequireCore;

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("operation", "/v1/orgs/{orgSlug}/projects/{projectName}/database/operations/{opId}", get)
        .summary("Get an operation, with its phase")
        .link("database.abort", "opId", "/id");
    area.post("abort", "/v1/orgs/{orgSlug}/projects/{projectName}/database/operations/{opId}/abort", abort)
        .summary("Abort an operation before its commit")
        .description(
            "An operation can be aborted in the phases `draining` and `sealing`. The database then serves again.",
        )
        .codes(&[&DatabaseError::NOT_ABORTABLE]);
}

path_parameters! {
    OperationId: "The id of the operation.";
}

async fn get(
    at: InProject<Member, ProjectRead>,
    Path(operation): Path<OperationId>,
    databases: Data<Databases>,
) -> Result<Json<Operation>, Problem> {
    Ok(Json(databases.operation(at.project.id, operation).await?))
}

async fn abort(
    at: InProject<Admin, ProjectWrite>,
    Path(operation): Path<OperationId>,
    _: RequireCore,
    databases: Data<Databases>,
) -> Result<Json<Operation>, Problem> {
    Ok(Json(databases.abort(&at.actor, (&at).into(), operation).await?))
}
