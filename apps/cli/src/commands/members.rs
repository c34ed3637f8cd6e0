//! `svc members`: the members of an organization.

use client::types::{Member, NewMember, Provider, Role, RoleChange};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::prompt;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Members {
    /// List the members of an organization
    List(PageArgs),
    /// Add a user who has signed in before. `svc orgs invite` invites other people
    Add {
        /// Subject of the user, which `svc whoami` shows to them: at the code host, their numeric ID
        subject: String,
        /// viewer, member or admin
        #[arg(long, default_value = "member")]
        role: String,
        /// How the user signs in: codehost or dev
        #[arg(long, default_value = "codehost")]
        provider: String,
    },
    /// Change the role of a member
    Role {
        /// ID of the user, as in the list
        user: String,
        /// viewer, member or admin
        role: String,
    },
    /// Remove a member
    Remove {
        /// ID of the user, as in the list
        user: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

impl Members {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let org = svc.org()?;
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.orgs_members(&org, &page.paging()).send().await?;
                svc.out.page(&page, ["USER", "SUBJECT", "PROVIDER", "ROLE", "NAME", "JOINED"], row)
            }
            Self::Add { subject, role, provider } => {
                let (provider, role) = (Provider::from(provider.as_str()), Role::from(role.as_str()));
                let added = client.orgs_member_add(&org, &NewMember { provider, role, subject }).send().await?;
                svc.out.response(&added, |member| member.user_id.clone())?;
                svc.out.success(format!("added {} as {}", added.subject, added.role));
                Ok(())
            }
            Self::Role { user, role } => {
                let change = RoleChange { role: Role::from(role.as_str()) };
                let changed = client.orgs_member_set_role(&org, &user, &change).send().await?;
                svc.out.response(&changed, |member| member.role.to_string())?;
                svc.out.success(format!("the role of {} in {org} is {}", changed.subject, changed.role));
                Ok(())
            }
            Self::Remove { user, yes } => {
                prompt::require_yes(yes, &format!("Remove {user} from {org}?"), "changed")?;
                let removed = client.orgs_member_remove(&org, &user).send().await?;
                svc.out.empty_response(&removed, format!("removed {user} from {org}"))
            }
        }
    }
}

fn row(member: &Member) -> [String; 6] {
    let Member { user_id, subject, provider, role, name, joined_at, .. } = member;
    let (provider, role, name) = (provider.to_string(), role.to_string(), or_dash(name.as_deref()));
    [user_id.clone(), subject.clone(), provider, role, name, joined_at.clone()]
}
