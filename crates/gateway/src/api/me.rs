//! The caller's own account.

use actix_web::web::Data;
use identity::Profile;
use orgs::{OrgMembership, Orgs};
use serde::Serialize;
use utoipa::ToSchema;

use crate::authority::SignedIn;
use crate::authority::scope::AccountRead;
use crate::http::{Json, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    routes.get("/v1/me", get).summary("The caller and the organizations they belong to");
}

/// A user together with their organizations.
#[derive(Debug, Serialize, ToSchema)]
struct User {
    #[serde(flatten)]
    profile: Profile,
    orgs: Vec<OrgMembership>,
}

async fn get(by: SignedIn<AccountRead>, orgs: Data<Orgs>) -> Result<Json<User>, Problem> {
    let orgs = orgs.memberships(by.user.id).await?;
    Ok(Json(User { profile: by.user, orgs }))
}
