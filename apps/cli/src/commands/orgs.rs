//! `svc orgs`: organizations, members and invitations.

use client::types::{NewInvite, NewOrg, OrgChange, Role};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Orgs {
    /// List your organizations
    List(PageArgs),
    /// Create an organization
    Create {
        slug: String,
        /// Display name (default: the slug)
        #[arg(long)]
        name: Option<String>,
    },
    /// Change the display name of an organization. Its slug stays
    Rename { name: String },
    /// Leave an organization
    Leave {
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
    /// Invite a person by mail
    Invite {
        email: String,
        /// viewer, member or admin
        #[arg(long, default_value = "member")]
        role: String,
    },
    /// Accept an invitation, given by its link or token
    Join { link: String },
}

impl Orgs {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.orgs_list(&page.paging()).send().await?;
                svc.out.page(&page, ["SLUG", "ROLE", "PLAN", "NAME"], |org| {
                    [org.slug.clone(), org.role.to_string(), org.plan.to_string(), org.name.clone()]
                })
            }
            Self::Create { slug, name } => {
                let org = client.orgs_create(&NewOrg { slug, name }).send().await?;
                svc.out.response(&org, |org| org.slug.clone())?;
                svc.out.success(format!("created the organization {}", org.slug));
                Ok(())
            }
            Self::Rename { name } => {
                let org = client.orgs_rename(&svc.org()?, &OrgChange { name }).send().await?;
                svc.out.response(&org, |org| org.name.clone())?;
                svc.out.success(format!("the name of {} is {}", org.slug, org.name));
                Ok(())
            }
            Self::Leave { yes } => {
                let org = svc.org()?;
                prompt::require_yes(yes, &format!("Leave {org}?"), "changed")?;
                let me = client.me_get().send().await?;
                let left = client.orgs_member_remove(&org, &me.id).send().await?;
                svc.out.empty_response(&left, format!("you left {org}"))
            }
            Self::Invite { email, role } => {
                let new = NewInvite { email, role: Role::from(role.as_str()) };
                let invite = client.invites_create(&svc.org()?, &new).send().await?;
                svc.out.response(&invite, |invite| invite.accept_url.reveal().to_owned())?;
                svc.out.success(format!("invited {} as {}", invite.email, invite.role));
                Ok(())
            }
            Self::Join { link } => {
                let joined = client.invites_accept(invite_token(&link)).send().await?;
                svc.out.response(&joined, |joined| joined.org.slug.clone())?;
                let article = if joined.role == Role::Admin { "an" } else { "a" };
                svc.out.success(format!("you are {article} {} of {}", joined.role, joined.org.slug));
                Ok(())
            }
        }
    }
}

/// Returns the token of an invitation, given by its link or token.
pub fn invite_token(link: &str) -> &str {
    link.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}
