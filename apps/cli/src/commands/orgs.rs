//! Organizations.

use client::types::{NewInvite, NewOrg, Role};

use crate::failure::Failure;
use crate::options::Part;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Orgs {
    /// The organizations that you belong to
    List(Part),
    /// Create an organization
    Create {
        slug: String,
        /// What people read; the slug when left out
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
    /// Accept an invitation: its link, or the token at the end of the link
    Join { link: String },
}

impl Orgs {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), Failure> {
        let client = svc.client()?;
        match self {
            Self::List(part) => {
                let page = client.orgs_list(&part.paging()).send().await?;
                svc.out.list(&page, ["SLUG", "ROLE", "PLAN", "NAME"], |org| {
                    [org.slug.clone(), org.role.to_string(), org.plan.to_string(), org.name.clone()]
                })
            }
            Self::Create { slug, name } => {
                let org = client.orgs_create(&NewOrg { slug, name }).send().await?;
                svc.out.answer(&org, |org| org.slug.clone())?;
                svc.out.done(format!("created the organization {}", org.slug));
                Ok(())
            }
            Self::Invite { email, role } => {
                let new = NewInvite { email, role: Role::from(role.as_str()) };
                let invite = client.invites_create(&svc.org()?, &new).send().await?;
                svc.out.answer(&invite, |invite| invite.accept_url.reveal().to_owned())?;
                svc.out.done(format!("invited {} as {}", invite.email, invite.role));
                Ok(())
            }
            Self::Join { link } => {
                let token = link.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
                let joined = client.invites_accept(token).send().await?;
                svc.out.answer(&joined, |joined| joined.org.slug.clone())?;
                svc.out.done(format!("you are {} of {}", joined.role, joined.org.slug));
                Ok(())
            }
        }
    }
}
