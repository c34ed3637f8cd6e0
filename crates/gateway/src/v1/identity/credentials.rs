//! The caller's personal access tokens and SSH keys.

use actix_web::web::Data;
use identity::{AccessToken, AccessTokenCreated, Identity, IdentityError, NewAccessToken, NewSshKey, SshKey};
use kernel::{KeyId, Page, TokenId};

use crate::authority::scope::AccountRead;
use crate::authority::{CurrentToken, Session, SignedIn};
use crate::http::{Body, Created, Json, NoContent, Pagination, Path, Routes, path_parameters};
use crate::limits::Limiters;
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("credentials", "The caller's personal access tokens and SSH keys.");
    area.get("tokens", "/v1/me/tokens", tokens).summary("List the caller's personal access tokens, newest first");
    area.post("token_create", "/v1/me/tokens", token_create)
        .summary("Create a personal access token, shown only once")
        .codes(&[&IdentityError::TOKEN_LIMIT])
        .link("credentials.token_revoke", "tokenId", "/id");
    area.get("token_current", "/v1/me/tokens/current", token_current)
        .summary("Get the personal access token that authenticates the request");
    area.delete("token_revoke", "/v1/me/tokens/{tokenId}", token_revoke).summary("Revoke a personal access token");
    area.get("keys", "/v1/me/ssh-keys", keys).summary("List the caller's SSH keys, newest first");
    area.post("key_add", "/v1/me/ssh-keys", key_add)
        .summary("Register an SSH public key")
        .codes(&[&IdentityError::SSH_KEY_EXISTS, &IdentityError::SSH_KEY_LIMIT])
        .link("credentials.key_delete", "keyId", "/id");
    area.delete("key_delete", "/v1/me/ssh-keys/{keyId}", key_delete).summary("Remove an SSH key");
}

path_parameters! {
    TokenId: "The personal access token's id.";
    KeyId: "The SSH key's id.";
}

async fn tokens(
    by: SignedIn<AccountRead>,
    identity: Data<Identity>,
    Pagination(pages): Pagination<TokenId>,
) -> Result<Json<Page<AccessToken>>, Problem> {
    Ok(Json(identity.tokens(by.user.id, &pages).await?))
}

async fn token_create(
    by: Session,
    identity: Data<Identity>,
    limiters: Data<Limiters>,
    Body(new): Body<NewAccessToken>,
) -> Result<Created<AccessTokenCreated>, Problem> {
    let created = identity.token_create(&by.actor, by.user.id, new).await?;
    limiters.remember(&created.token, by.user.id);
    Ok(Created(created))
}

async fn token_current(by: CurrentToken, identity: Data<Identity>) -> Result<Json<AccessToken>, Problem> {
    Ok(Json(identity.token(by.user.id, by.token).await?))
}

async fn token_revoke(by: Session, Path(token): Path<TokenId>, identity: Data<Identity>) -> Result<NoContent, Problem> {
    identity.token_revoke(&by.actor, by.user.id, token).await?;
    Ok(NoContent)
}

async fn keys(
    by: SignedIn<AccountRead>,
    identity: Data<Identity>,
    Pagination(pages): Pagination<KeyId>,
) -> Result<Json<Page<SshKey>>, Problem> {
    Ok(Json(identity.keys(by.user.id, &pages).await?))
}

async fn key_add(
    by: Session,
    identity: Data<Identity>,
    Body(new): Body<NewSshKey>,
) -> Result<Created<SshKey>, Problem> {
    Ok(Created(identity.key_add(&by.actor, by.user.id, new).await?))
}

async fn key_delete(by: Session, Path(key): Path<KeyId>, identity: Data<Identity>) -> Result<NoContent, Problem> {
    identity.key_delete(&by.actor, by.user.id, key).await?;
    Ok(NoContent)
}
