//! The caller's own account.

use actix_web::web::Data;
use identity::{Identity, LoginSession, Profile};
use kernel::{AuditId, Page, SessionId};
use orgs::{AuditEvent, AuditFilter, OrgMembership, Orgs};
use serde::Serialize;
use utoipa::ToSchema;

use crate::authority::scope::AccountRead;
use crate::authority::{Session, SignedInFiltered};
use crate::http::{Json, NoContent, Pagination, Path, Query, Routes, path_parameters};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("me", "The caller's own account.");
    area.get("get", "/v1/me", get).summary("Get the caller and their organizations");
    area.get("audit", "/v1/me/audit", audit).summary("List the audit events of the caller's own account, newest first");
    area.get("sessions", "/v1/me/sessions", sessions)
        .summary("List the caller's active login sessions, newest first")
        .link("me.session_end", "sessionId", "/items/0/id");
    area.delete("session_end", "/v1/me/sessions/{sessionId}", session_end)
        .summary("End one of the caller's login sessions");
}

path_parameters! {
    SessionId: "The login session's id.";
}

/// A user and their organizations.
#[derive(Debug, Serialize, ToSchema)]
struct User {
    #[serde(flatten)]
    profile: Profile,
    orgs: Vec<OrgMembership>,
}

async fn get(by: SignedInFiltered<AccountRead>, orgs: Data<Orgs>) -> Result<Json<User>, Problem> {
    let orgs = orgs.memberships(by.user.id, by.orgs.as_deref()).await?;
    Ok(Json(User { profile: by.user, orgs }))
}

async fn audit(
    by: Session,
    orgs: Data<Orgs>,
    Query(filter): Query<AuditFilter>,
    Pagination(pages): Pagination<AuditId>,
) -> Result<Json<Page<AuditEvent>>, Problem> {
    Ok(Json(orgs.account_audit(by.user.id, &filter, &pages).await?))
}

async fn sessions(
    by: Session,
    identity: Data<Identity>,
    Pagination(pages): Pagination<SessionId>,
) -> Result<Json<Page<LoginSession>>, Problem> {
    Ok(Json(identity.sessions(by.user.id, by.session, &pages).await?))
}

async fn session_end(
    by: Session,
    Path(session): Path<SessionId>,
    identity: Data<Identity>,
) -> Result<NoContent, Problem> {
    identity.session_end(&by.actor, by.user.id, session).await?;
    Ok(NoContent)
}
