//! Sign-in and sign-out.

use actix_web::web::Data;
use identity::{DevLogin, Identity, IdentityError, Session};

use crate::authority::{self, SignIn};
use crate::http::{Body, Json, NoContent, RequestHeaders, Routes};
use crate::limits::Limiters;
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes, dev_auth: bool) {
    let mut area = routes.area("auth", "Sign-in and sign-out.");
    if dev_auth {
        area.post("dev_login", "/v1/auth/dev/login", dev_login).summary("Sign in on a development installation");
    }
    area.post("logout", "/v1/auth/logout", logout).summary("End the caller's login session");
}

async fn dev_login(
    by: SignIn,
    identity: Data<Identity>,
    limiters: Data<Limiters>,
    header: RequestHeaders,
    Body(login): Body<DevLogin>,
) -> Result<Json<Session>, Problem> {
    let session = identity.dev_login(&by.actor, login, header.get("user-agent")).await?;
    limiters.remember(&session.token, session.user_id);
    Ok(Json(session))
}

async fn logout(by: authority::Session, identity: Data<Identity>) -> Result<NoContent, Problem> {
    match identity.session_end(&by.actor, by.user.id, by.session).await {
        // A concurrent request ended the session.
        Ok(()) | Err(IdentityError::SessionNotFound) => Ok(NoContent),
        Err(error) => Err(error.into()),
    }
}
