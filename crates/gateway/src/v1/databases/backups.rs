//! Exports, the list of backups, and the start of a restore or a deletion.

use actix_web::web::Data;
use databases::{
    DatabaseError, DatabaseExport, DatabaseGenerations, Databases, DeleteRequest, OperationStarted, RestoreRequest,
};

use crate::authority::InProject;
use crate::authority::role::{Admin, Member};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Accepted, Area, Body, Json, NodeWait};
use crate::problem::Problem;
use crate::require::RequireCore;

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("export", "/v1/orgs/{orgSlug}/projects/{projectName}/database/export", export)
        .summary("Export a database to a diagnostic object, and wait until it is complete")
        .description(
            "The response arrives after the dump, which can take up to ten minutes. An export is not a backup: it cannot \
             be restored over the API, and is deleted after seven days. Only the newest five of a project are kept.",
        )
        .codes(&[&DatabaseError::SUSPENDED, &DatabaseError::OPERATION_IN_PROGRESS, &DatabaseError::EXPORT_FAILED])
        .codes(&[&DatabaseError::NO_HOME_NODE, &DatabaseError::NO_NODE_ADMIN]);
    area.get("generations", "/v1/orgs/{orgSlug}/projects/{projectName}/database/generations", generations)
        .summary("List the backups of a database, newest first")
        .description("Also lists the backups of a deleted database of the project.");
    area.post("restore", "/v1/orgs/{orgSlug}/projects/{projectName}/database/restore", restore)
        .summary("Start to replace the content of a database with a backup")
        .description(
            "Refuses logins, backs up the present content, and swaps in the content of the backup. Writes since that \
             backup are lost from the database. Connection info and tokens stay.",
        )
        .codes(&[&DatabaseError::OPERATION_IN_PROGRESS, &DatabaseError::SUSPENDED, &DatabaseError::DATABASE_REQUIRED])
        .codes(&[&DatabaseError::NO_HOME_NODE, &DatabaseError::NO_NODE_ADMIN])
        .link("database.operation", "opId", "/operationId")
        .link("database.abort", "opId", "/operationId");
    area.post("delete", "/v1/orgs/{orgSlug}/projects/{projectName}/database/delete", delete)
        .summary("Start to delete a database, after a final backup")
        .description("`confirm` repeats the project's name. Tokens and connection info end with the database.")
        .codes(&[&DatabaseError::CONFIRM_MISMATCH, &DatabaseError::OPERATION_IN_PROGRESS])
        .codes(&[&DatabaseError::SUSPENDED, &DatabaseError::AUTH_ENABLED])
        .codes(&[&DatabaseError::NO_HOME_NODE, &DatabaseError::NO_NODE_ADMIN])
        .link("database.operation", "opId", "/operationId")
        .link("database.abort", "opId", "/operationId");
}

async fn export(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    _: NodeWait,
    databases: Data<Databases>,
) -> Result<Json<DatabaseExport>, Problem> {
    Ok(Json(databases.export(&at.actor, (&at).into()).await?))
}

async fn generations(
    at: InProject<Member, ProjectRead>,
    databases: Data<Databases>,
) -> Result<Json<DatabaseGenerations>, Problem> {
    Ok(Json(databases.generations(at.project.id).await?))
}

async fn restore(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    databases: Data<Databases>,
    Body(request): Body<RestoreRequest>,
) -> Result<Accepted<OperationStarted>, Problem> {
    Ok(Accepted(databases.restore(&at.actor, (&at).into(), request).await?))
}

async fn delete(
    at: InProject<Admin, ProjectWrite>,
    _: RequireCore,
    databases: Data<Databases>,
    Body(request): Body<DeleteRequest>,
) -> Result<Accepted<OperationStarted>, Problem> {
    Ok(Accepted(databases.delete(&at.actor, (&at).into(), &at.project.name, request).await?))
}
