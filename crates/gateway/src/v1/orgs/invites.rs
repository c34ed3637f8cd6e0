//! Invitations to an organization, and its notifications.

use actix_web::web::Data;
use kernel::{InviteId, NotificationId, Page};
use orgs::{Invite, InviteCreated, InviteOutcome, InviteView, JoinResult, NewInvite, Notification, OrgError, Orgs};

use crate::authority::role::{Admin, Viewer};
use crate::authority::scope::{OrgRead, OrgWrite};
use crate::authority::{InOrg, Preview, SignedIn};
use crate::http::{
    Body, CreatedOrExisting, Json, NoContent, Pagination, Path, Routes, path_parameters, text_path_parameters,
};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("invites", "Invitations to an organization, and its notifications.");
    area.get("list", "/v1/orgs/{orgSlug}/invites", list)
        .summary("List open invitations, including expired ones, newest first");
    area.post("create", "/v1/orgs/{orgSlug}/invites", create)
        .summary("Invite an email address (201), or resend its open invitation (200)")
        .codes(&[&OrgError::ALREADY_MEMBER, &OrgError::TOO_MANY_INVITES])
        .link("invites.revoke", "inviteId", "/id");
    area.delete("revoke", "/v1/orgs/{orgSlug}/invites/{inviteId}", revoke).summary("Revoke an open invitation");
    area.get("preview", "/v1/invites/{token}", preview).summary("Preview an invitation by the token in its link");
    area.post("accept", "/v1/invites/{token}/accept", accept).summary("Accept an invitation").codes(&[
        &OrgError::INVITE_USED,
        &OrgError::INVITE_REVOKED,
        &OrgError::INVITE_EXPIRED,
    ]);
    area.get("notifications", "/v1/orgs/{orgSlug}/notifications", notifications)
        .summary("List notifications, newest first");
}

path_parameters! {
    InviteId: "The invitation's id.";
}

text_path_parameters! {
    InviteToken: "The token in the invitation's link.";
}

async fn list(
    at: InOrg<Admin, OrgRead>,
    orgs: Data<Orgs>,
    Pagination(pages): Pagination<InviteId>,
) -> Result<Json<Page<Invite>>, Problem> {
    Ok(Json(orgs.invites(at.org.id, &pages).await?))
}

async fn create(
    at: InOrg<Admin, OrgWrite>,
    orgs: Data<Orgs>,
    Body(new): Body<NewInvite>,
) -> Result<CreatedOrExisting<InviteCreated>, Problem> {
    Ok(match orgs.invite(&at.actor, at.org.id, at.user.id, new).await? {
        InviteOutcome::Created(invite) => CreatedOrExisting::Created(invite),
        InviteOutcome::Resent(invite) => CreatedOrExisting::Existing(invite),
    })
}

async fn revoke(
    at: InOrg<Admin, OrgWrite>,
    Path(invite): Path<InviteId>,
    orgs: Data<Orgs>,
) -> Result<NoContent, Problem> {
    orgs.invite_revoke(&at.actor, at.org.id, invite).await?;
    Ok(NoContent)
}

async fn preview(
    _: Preview,
    Path(InviteToken(token)): Path<InviteToken>,
    orgs: Data<Orgs>,
) -> Result<Json<InviteView>, Problem> {
    Ok(Json(orgs.invite_preview(&token).await?))
}

async fn accept(
    by: SignedIn<OrgWrite>,
    Path(InviteToken(token)): Path<InviteToken>,
    orgs: Data<Orgs>,
) -> Result<Json<JoinResult>, Problem> {
    Ok(Json(orgs.invite_accept(&by.actor, by.user.id, &token).await?))
}

async fn notifications(
    at: InOrg<Viewer, OrgRead>,
    orgs: Data<Orgs>,
    Pagination(pages): Pagination<NotificationId>,
) -> Result<Json<Page<Notification>>, Problem> {
    Ok(Json(orgs.notifications(at.org.id, &pages).await?))
}
