//! Organizations and their members.

use actix_web::web::Data;
use kernel::{AuditId, OrgId, Page, UserId};
use orgs::{AuditEvent, AuditFilter, Member, NewMember, NewOrg, Org, OrgChange, OrgError, Orgs, RoleChange};

use crate::authority::role::{Admin, Member as AtLeastMember, Viewer};
use crate::authority::scope::{OrgRead, OrgWrite};
use crate::authority::{InOrg, SignedIn, SignedInFiltered};
use crate::http::{Body, Created, Json, NoContent, Pagination, Path, Query, Routes, path_parameters};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("orgs", "Organizations, their members and their audit log.");
    area.get("list", "/v1/orgs", list).summary("List the caller's organizations");
    area.post("create", "/v1/orgs", create)
        .summary("Create an organization")
        .codes(&[&OrgError::SLUG_TAKEN, &OrgError::ORG_LIMIT])
        .link("orgs.rename", "orgSlug", "/slug")
        .link("projects.create", "orgSlug", "/slug");
    area.patch("rename", "/v1/orgs/{orgSlug}", rename).summary("Rename an organization");
    area.get("audit", "/v1/orgs/{orgSlug}/audit", audit).summary("List audit events, newest first");
    area.get("members", "/v1/orgs/{orgSlug}/members", members).summary("List the members of an organization");
    area.post("member_add", "/v1/orgs/{orgSlug}/members", member_add)
        .summary("Add a user who has signed in before")
        .codes(&[&OrgError::USER_NOT_FOUND, &OrgError::ALREADY_MEMBER])
        .link("orgs.member_set_role", "userId", "/userId")
        .link("orgs.member_remove", "userId", "/userId");
    area.put("member_set_role", "/v1/orgs/{orgSlug}/members/{userId}", member_set_role)
        .summary("Change a member's role")
        .codes(&[&OrgError::LAST_ADMIN]);
    area.delete("member_remove", "/v1/orgs/{orgSlug}/members/{userId}", member_remove)
        .summary("Remove a member (admin), or leave the organization (any member)")
        .codes(&[&OrgError::LAST_ADMIN]);
}

path_parameters! {
    UserId: "The member's user id.";
}

async fn list(
    by: SignedInFiltered<OrgRead>,
    orgs: Data<Orgs>,
    Pagination(pages): Pagination<OrgId>,
) -> Result<Json<Page<Org>>, Problem> {
    Ok(Json(orgs.list(by.user.id, by.orgs.as_deref(), &pages).await?))
}

async fn create(by: SignedIn<OrgWrite>, orgs: Data<Orgs>, Body(new): Body<NewOrg>) -> Result<Created<Org>, Problem> {
    Ok(Created(orgs.create(&by.actor, by.user.id, new).await?))
}

async fn rename(
    at: InOrg<Admin, OrgWrite>,
    orgs: Data<Orgs>,
    Body(change): Body<OrgChange>,
) -> Result<Json<Org>, Problem> {
    Ok(Json(orgs.rename(&at.actor, at.org.role, at.org.id, change).await?))
}

async fn audit(
    at: InOrg<Admin, OrgRead>,
    orgs: Data<Orgs>,
    Query(filter): Query<AuditFilter>,
    Pagination(pages): Pagination<AuditId>,
) -> Result<Json<Page<AuditEvent>>, Problem> {
    Ok(Json(orgs.audit(at.org.id, &filter, &pages).await?))
}

async fn members(
    at: InOrg<AtLeastMember, OrgRead>,
    orgs: Data<Orgs>,
    Pagination(pages): Pagination<UserId>,
) -> Result<Json<Page<Member>>, Problem> {
    Ok(Json(orgs.members(at.org.id, &pages).await?))
}

async fn member_add(
    at: InOrg<Admin, OrgWrite>,
    orgs: Data<Orgs>,
    Body(new): Body<NewMember>,
) -> Result<Created<Member>, Problem> {
    Ok(Created(orgs.member_add(&at.actor, at.org.id, new).await?))
}

async fn member_set_role(
    at: InOrg<Admin, OrgWrite>,
    Path(user): Path<UserId>,
    orgs: Data<Orgs>,
    Body(change): Body<RoleChange>,
) -> Result<Json<Member>, Problem> {
    Ok(Json(orgs.member_set_role(&at.actor, at.org.id, user, change).await?))
}

async fn member_remove(
    at: InOrg<Viewer, OrgWrite>,
    Path(user): Path<UserId>,
    orgs: Data<Orgs>,
) -> Result<NoContent, Problem> {
    orgs.member_remove(&at.actor, at.org.role, at.org.id, user).await?;
    Ok(NoContent)
}
