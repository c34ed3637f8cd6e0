//! Signing in and out.

use actix_web::web::Data;
use identity::{DevLogin, Identity, IdentityError, Session};

use crate::authority::{self, SignIn};
use crate::http::{Body, Header, Json, NoContent, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes, dev_auth: bool) {
    let mut area = routes.area("auth", "Signing in and out.");
    if dev_auth {
        area.post("dev_login", "/v1/auth/dev/login", dev_login).summary("Sign in on a development deployment");
    }
    area.post("logout", "/v1/auth/logout", logout).summary("End the session that the request is made with");
}

async fn dev_login(
    by: SignIn,
    identity: Data<Identity>,
    header: Header,
    Body(login): Body<DevLogin>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(identity.dev_login(&by.actor, login, header.get("user-agent")).await?))
}

async fn logout(by: authority::Session, identity: Data<Identity>) -> Result<NoContent, Problem> {
    match identity.session_end(&by.actor, by.user.id, by.session).await {
        // Another request ended it first: it is what was asked for.
        Ok(()) | Err(IdentityError::SessionNotFound) => Ok(NoContent),
        Err(error) => Err(error.into()),
    }
}
