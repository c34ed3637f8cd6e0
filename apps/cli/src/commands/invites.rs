//! `svc invites`: the open invitations of an organization.

use client::types::{Invite, InviteView};

use super::orgs::invite_token;
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{fields, or_dash};
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Invites {
    /// List the open invitations of an organization, newest first
    List(PageArgs),
    /// Show an invitation that you received, given by its link or token
    Show { link: String },
    /// Revoke an invitation
    Revoke {
        /// ID of the invitation
        id: String,
    },
}

impl Invites {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        match self {
            Self::List(page) => {
                let page = svc.client()?.invites_list(&svc.org()?, &page.paging()).send().await?;
                svc.out.page(&page, ["ID", "EMAIL", "ROLE", "STATE", "EXPIRES", "MAILED"], row)
            }
            // The token is the credential of the invitation.
            Self::Show { link } => {
                svc.out.response(&svc.anonymous.invites_preview(invite_token(&link)).send().await?, show)
            }
            Self::Revoke { id } => {
                let revoked = svc.client()?.invites_revoke(&svc.org()?, &id).send().await?;
                svc.out.empty_response(&revoked, format!("revoked {id}"))
            }
        }
    }
}

fn row(invite: &Invite) -> [String; 6] {
    let Invite { id, email, role, state, expires_at, sent_at, .. } = invite;
    let (role, state, sent_at) = (role.to_string(), state.to_string(), or_dash(sent_at.as_deref()));
    [id.clone(), email.clone(), role, state, expires_at.clone(), sent_at]
}

fn show(invite: &InviteView) -> String {
    let InviteView { expires_at, org_name, org_slug, role, state } = invite;
    fields(&[
        ["organization", &format!("{org_slug} ({org_name})")],
        ["role", role.as_str()],
        ["state", state.as_str()],
        ["expires", expires_at],
    ])
}
