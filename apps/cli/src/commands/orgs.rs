//! `svc orgs`: organizations, members and invitations.

use client::types::{NewInvite, NewOrg, Role};

use crate::error::CliError;
use crate::options::PageArgs;
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
            Self::Invite { email, role } => {
                let new = NewInvite { email, role: Role::from(role.as_str()) };
                let invite = client.invites_create(&svc.org()?, &new).send().await?;
                svc.out.response(&invite, |invite| invite.accept_url.reveal().to_owned())?;
                svc.out.success(format!("invited {} as {}", invite.email, invite.role));
                Ok(())
            }
            Self::Join { link } => {
                let token = link.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let joined = client.invites_accept(token).send().await?;
                svc.out.response(&joined, |joined| joined.org.slug.clone())?;
                let article = if joined.role == Role::Admin { "an" } else { "a" };
                svc.out.success(format!("you are {article} {} of {}", joined.role, joined.org.slug));
                Ok(())
            }
        }
    }
}
