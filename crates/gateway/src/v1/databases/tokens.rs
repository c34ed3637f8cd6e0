//! Tokens: logins to the database for a limited time.

use actix_web::web::Data;
use databases::{DatabaseError, DatabaseToken, Databases, NewDatabaseToken};
use kernel::{DatabaseTokenId, Page};

use crate::authority::InProject;
use crate::authority::role::Member;
use crate::authority::scope::{ProjectRead, ProjectWrite};
use crate::http::{Area, Body, Created, Json, NoContent, NodeWait, Pagination, Path, path_parameters};
use crate::problem::Problem;
use crate::require::RequireCore;

const TOKENS: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/database/tokens";
const TOKEN: &str = "/v1/orgs/{orgSlug}/projects/{projectName}/database/tokens/{tokenUser}";

pub(super) fn routes(area: &mut Area<'_>) {
    area.get("tokens", TOKENS, list).summary("List the tokens of a database, newest first, without their passwords");
    area.post("token_create", TOKENS, create)
        .summary("Create a token, whose password is shown only once")
        .description(
            "A token is a login with an optional expiry. Its sessions have the rights of the project's own login.",
        )
        .codes(&[&DatabaseError::TOKEN_LIMIT])
        .link("database.token_revoke", "tokenUser", "/user");
    area.delete("token_revoke", TOKEN, revoke)
        .summary("Revoke a token, and wait until its node refuses new logins")
        .description(
            "Open sessions continue. If the node does not confirm within ten seconds, the response is 503 `unavailable`: \
             the node refuses the login as soon as it is reachable, and the request can be repeated.",
        );
}

path_parameters! {
    DatabaseTokenId: "The user of the token.";
}

async fn list(
    at: InProject<Member, ProjectRead>,
    databases: Data<Databases>,
    Pagination(pages): Pagination<DatabaseTokenId>,
) -> Result<Json<Page<DatabaseToken>>, Problem> {
    Ok(Json(databases.tokens(at.project.id, &pages).await?))
}

async fn create(
    at: InProject<Member, ProjectWrite>,
    _: RequireCore,
    databases: Data<Databases>,
    Body(new): Body<NewDatabaseToken>,
) -> Result<Created<DatabaseToken>, Problem> {
    Ok(Created(databases.token_create(&at.actor, (&at).into(), at.user.id, new).await?))
}

async fn revoke(
    at: InProject<Member, ProjectWrite>,
    Path(user): Path<DatabaseTokenId>,
    _: RequireCore,
    _: NodeWait,
    databases: Data<Databases>,
) -> Result<NoContent, Problem> {
    databases.token_revoke(&at.actor, (&at).into(), &user.to_string()).await?;
    Ok(NoContent)
}
