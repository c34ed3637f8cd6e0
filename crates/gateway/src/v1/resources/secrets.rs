//! Secrets of a project.

use actix_web::web::Data;
use kernel::Page;
use resources::{NewSecretValue, ResourceError, Resources, SecretChanges, SecretMeta, SecretName};

use crate::authority::InProject;
use crate::authority::role::Member;
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Body, Json, NoContent, Pagination, Path, Routes, text_path_parameters};
use crate::problem::Problem;

const SECRETS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/secrets";
const SECRET: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/secrets/{secretName}";

/// The largest body with values, in bytes. A character of a value can take six bytes in JSON.
const MAX_BODY_BYTES: usize = 512 * 1024;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area(
        "secrets",
        "Secrets of a project, which worker code reads as `env.<NAME>`. No response contains a value.",
    );
    let codes = [&ResourceError::RESERVED_NAME, &ResourceError::SECRET_LIMIT];
    area.get("list", SECRETS, list).summary("List the secrets of a project, sorted by name, without their values");
    area.put("change", SECRETS, change)
        .summary("Set and delete several secrets in one step")
        .description(
            "All changes are applied, or none. A name with null is deleted. Other secrets keep their values. The \
             response contains all secrets of the project.",
        )
        .codes(&codes);
    area.put("set", SECRET, set)
        .summary("Set the value of a secret, which creates a version")
        .description("The worker restarts with the new value within seconds, without a new deployment.")
        .codes(&codes)
        .link("secrets.delete", "secretName", "/name");
    area.delete("delete", SECRET, delete).summary("Delete a secret");
}

// The service parses the name, because the error of a malformed name is 400 for `PUT` and 404 for `DELETE`.
text_path_parameters! {
    SecretNameParameter as SecretName: "The secret's name, which worker code reads as `env.<NAME>`.", "API_KEY";
}

async fn list(
    at: InProject<Member, ProjectRead>,
    Pagination(paging): Pagination<String>,
    resources: Data<Resources>,
) -> Result<Json<Page<SecretMeta>>, Problem> {
    Ok(Json(resources.secrets(at.project.id, &paging).await?))
}

async fn change(
    at: InProject<Member, ProjectWrite>,
    resources: Data<Resources>,
    Body(changes): Body<SecretChanges, MAX_BODY_BYTES>,
) -> Result<Json<Page<SecretMeta>>, Problem> {
    Ok(Json(resources.secrets_change(&at.actor, (&at).into(), at.user.id, changes).await?))
}

async fn set(
    at: InProject<Member, ProjectWrite>,
    Path(SecretNameParameter(name)): Path<SecretNameParameter>,
    resources: Data<Resources>,
    Body(new): Body<NewSecretValue, MAX_BODY_BYTES>,
) -> Result<Json<SecretMeta>, Problem> {
    Ok(Json(resources.secret_set(&at.actor, (&at).into(), at.user.id, &name, new).await?))
}

async fn delete(
    at: InProject<Member, ProjectWrite>,
    Path(SecretNameParameter(name)): Path<SecretNameParameter>,
    resources: Data<Resources>,
) -> Result<NoContent, Problem> {
    resources.secret_delete(&at.actor, (&at).into(), &name).await?;
    Ok(NoContent)
}
