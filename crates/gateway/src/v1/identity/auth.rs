//! Sign-in and sign-out.

use actix_web::web::Data;
use identity::{DevLogin, Identity, IdentityError, Session};

use crate::authority::{self, SignIn};
use crate::http::{Body, Json, NoContent, RequestHeaders, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes, dev_auth: bool) {
    let mut area = routes.area("auth", "Sign-in and sign-out.");
    if dev_auth {
        area.post("dev_login", "/v1/auth/dev/login", dev_login).summary("Sign in on a development deployment");
    }
    area.post("logout", "/v1/auth/logout", logout).summary("End the caller's login session");
}

async fn dev_login(
    by: SignIn,
    identity: Data<Identity>,
    header: RequestHeaders,
    Body(login): Body<DevLogin>,
) -> Result<Json<Session>, Problem> {
    Ok(Json(identity.dev_login(&by.actor, login, header.get("user-agent")).await?))
}

async fn logout(by: authority::Session, identity: Data<Identity>) -> Result<NoContent, Problem> {
    match identity.session_end(&by.actor, by.user.id, by.session).await {
        // A concurrent request ended the session.
        Ok(()) | Err(IdentityError::SessionNotFound) => Ok(NoContent),
        Err(error) => Err(error.into()),
    }
}
