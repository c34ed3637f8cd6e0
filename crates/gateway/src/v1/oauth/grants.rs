//! The decision of a user about an app, and the user's grants.

use actix_web::web::Data;
use kernel::{ClientId, GrantId, Page};
use oauth::{AuthorizationRequest, AuthorizationResponse, ConsentClient, Grant, OAuth, OAuthError};

use crate::authority::Session;
use crate::http::{Area, Body, Json, NoContent, Pagination, Path, path_parameters};
use crate::problem::Problem;

pub(super) fn routes(area: &mut Area<'_>) {
    area.post("authorize", "/v1/oauth/authorize", authorize)
        .summary("Approve or deny the authorization request of an app")
        .description(
            "The dashboard calls it for the user and sends the browser to `redirect`. A request with an unknown client or \
             redirect URI is an error; the app learns of every other error through the redirect.",
        )
        .codes(&[&OAuthError::NOT_CONFIGURED]);
    area.get("client", "/v1/oauth/clients/{clientId}", client)
        .summary("Get the app that an authorization request names")
        .codes(&[&OAuthError::NOT_CONFIGURED]);
    area.get("grants", "/v1/oauth/grants", grants).summary("List the caller's grants to apps, newest first").link(
        "oauth.grant_revoke",
        "sid",
        "/items/0/sid",
    );
    area.delete("grant_revoke", "/v1/oauth/grants/{sid}", grant_revoke)
        .summary("End a grant; its tokens are rejected from the next request on");
}

path_parameters! {
    ClientId: "The app's `client_id`.";
    GrantId: "The grant's id.";
}

async fn authorize(
    by: Session,
    oauth: Data<OAuth>,
    Body(request): Body<AuthorizationRequest>,
) -> Result<Json<AuthorizationResponse>, Problem> {
    Ok(Json(oauth.authorize(&by.actor, by.user.id, request).await?))
}

async fn client(_: Session, Path(client): Path<ClientId>, oauth: Data<OAuth>) -> Result<Json<ConsentClient>, Problem> {
    Ok(Json(oauth.client(client).await?))
}

async fn grants(
    by: Session,
    oauth: Data<OAuth>,
    Pagination(pages): Pagination<GrantId>,
) -> Result<Json<Page<Grant>>, Problem> {
    Ok(Json(oauth.grants(by.user.id, &pages).await?))
}

async fn grant_revoke(by: Session, Path(grant): Path<GrantId>, oauth: Data<OAuth>) -> Result<NoContent, Problem> {
    oauth.grant_revoke(&by.actor, by.user.id, grant).await?;
    Ok(NoContent)
}
