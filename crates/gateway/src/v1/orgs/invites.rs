//! Invitations to an organization, and what it is notified of.

use actix_web::web::Data;
use kernel::{InviteId, NotificationId, Page};
use orgs::{Invite, InviteCreated, InviteView, Invited, Joined, NewInvite, Notification, OrgError, Orgs};

use crate::authority::role::{Admin, Viewer};
use crate::authority::scope::{OrgRead, OrgWrite};
use crate::authority::{InOrg, Preview, SignedIn};
use crate::http::{Body, Json, Made, NoContent, Pages, Path, Routes, path_parameters, path_texts};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("invites", "Invitations to an organization, and what it is notified of.");
    area.get("list", "/v1/orgs/{orgSlug}/invites", list)
        .summary("The open invitations, newest first; expired ones too");
    area.post("create", "/v1/orgs/{orgSlug}/invites", create)
        .summary("Invite an address (201), or send its open invitation again (200)")
        .codes(&[&OrgError::ALREADY_MEMBER, &OrgError::TOO_MANY_INVITES])
        .leads_to("invites.revoke", "inviteId", "/id");
    area.delete("revoke", "/v1/orgs/{orgSlug}/invites/{inviteId}", revoke).summary("Take an open invitation back");
    area.get("preview", "/v1/invites/{token}", preview).summary("What an invitation is to, for whoever has its link");
    area.post("accept", "/v1/invites/{token}/accept", accept).summary("Join by an invitation").codes(&[
        &OrgError::INVITE_USED,
        &OrgError::INVITE_REVOKED,
        &OrgError::INVITE_EXPIRED,
    ]);
    area.get("notifications", "/v1/orgs/{orgSlug}/notifications", notifications)
        .summary("The notifications, newest first");
}

path_parameters! {
    InviteId: "The invitation's id.";
}

path_texts! {
    InviteToken: "The token of the invitation's link.";
}

async fn list(
    at: InOrg<Admin, OrgRead>,
    orgs: Data<Orgs>,
    Pages(pages): Pages<InviteId>,
) -> Result<Json<Page<Invite>>, Problem> {
    Ok(Json(orgs.invites(at.org.id, &pages).await?))
}

async fn create(
    at: InOrg<Admin, OrgWrite>,
    orgs: Data<Orgs>,
    Body(new): Body<NewInvite>,
) -> Result<Made<InviteCreated>, Problem> {
    Ok(match orgs.invite(&at.actor, at.org.id, at.user.id, new).await? {
        Invited::New(invite) => Made::New(invite),
        Invited::Again(invite) => Made::Before(invite),
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
) -> Result<Json<Joined>, Problem> {
    Ok(Json(orgs.invite_accept(&by.actor, by.user.id, &token).await?))
}

async fn notifications(
    at: InOrg<Viewer, OrgRead>,
    orgs: Data<Orgs>,
    Pages(pages): Pages<NotificationId>,
) -> Result<Json<Page<Notification>>, Problem> {
    Ok(Json(orgs.notifications(at.org.id, &pages).await?))
}
