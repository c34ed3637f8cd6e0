//! The database and its connection info.

use actix_web::web::Data;
use databases::{DatabaseConnect, DatabaseEndpoint, DatabaseError, DatabaseStatus, Databases};
use kernel::Code;

use crate::authority::InProject;
use crate::authority::role::{Member, Viewer};
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Area, Json};
use crate::problem::Problem;
use crate::require::RequireCore;

const DATABASE: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/database";

/// The error codes for a project whose database has no address.
const UNREACHABLE: [&Code; 2] = [&DatabaseError::NO_HOME_NODE, &DatabaseError::NO_NODE_ADMIN];

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("get", DATABASE, get).summary("Get whether a project has a database");
    area.post("enable", DATABASE, enable)
        .summary("Enable the database of a project, or return the connection info of the existing one")
        .description(
            "The database accepts connections within seconds. The connection info never changes, not even after a \
             restore.",
        )
        .codes(&[&DatabaseError::OPERATION_IN_PROGRESS])
        .codes(&UNREACHABLE);
    area.get("connect", "/v1/orgs/{orgSlug}/projects/{projectName}/database/connect", connect)
        .summary("Get the connection info of a database, with its password")
        .codes(&UNREACHABLE);
    area.get("endpoint", "/v1/orgs/{orgSlug}/projects/{projectName}/database/endpoint", endpoint)
        .summary("Get the address of a database, without credentials")
        .codes(&UNREACHABLE);
}

async fn get(at: InProject<Viewer, ProjectRead>) -> Result<Json<DatabaseStatus>, Problem> {
    Ok(Json(DatabaseStatus { db: at.project.granted_resources.database }))
}

async fn enable(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    databases: Data<Databases>,
) -> Result<Json<DatabaseConnect>, Problem> {
    Ok(Json(databases.enable(&at.actor, (&at).into()).await?))
}

async fn connect(
    at: InProject<Member, ProjectRead>,
    databases: Data<Databases>,
) -> Result<Json<DatabaseConnect>, Problem> {
    Ok(Json(databases.connect(at.project.id).await?))
}

async fn endpoint(
    at: InProject<Viewer, ProjectRead>,
    databases: Data<Databases>,
) -> Result<Json<DatabaseEndpoint>, Problem> {
    Ok(Json(databases.endpoint(at.project.id).await?))
}
