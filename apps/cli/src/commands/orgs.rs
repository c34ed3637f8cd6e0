//! Organizations.

use client::types::NewOrg;

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
        }
    }
}
