//! `svc repos`: the git repositories of a project.

use client::types::{NewRepo, Repo, RepoChange, Visibility};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Repos {
    /// List the repositories of a project, newest first
    List(PageArgs),
    /// Create an empty repository
    Create {
        name: String,
        /// Let everyone read it
        #[arg(long)]
        public: bool,
        /// The branch that `HEAD` names (default: main)
        #[arg(long, value_name = "BRANCH")]
        default_branch: Option<String>,
    },
    /// Rename a repository. Nothing redirects from the old name
    Rename { name: String, new_name: String },
    /// Delete a repository. Its contents are erased after 30 days
    Delete { name: String },
}

impl Repos {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.repos_list(&org, &project, &page.paging()).send().await?;
                svc.out.page(&page, ["NAME", "VISIBILITY", "BRANCH", "URL"], row)
            }
            Self::Create { name, public, default_branch } => {
                let visibility = public.then(|| Visibility::from("public"));
                let new = NewRepo { name, visibility, default_branch };
                let repo = client.repos_create(&org, &project, &new).send().await?;
                svc.out.response(&repo, |repo| or_dash(url(repo)))?;
                svc.out.success(format!("created the repository {}", repo.name));
                svc.out.info("Push with a token of the scope git:write as the password, or with a registered SSH key.");
                Ok(())
            }
            Self::Rename { name, new_name } => {
                let change = RepoChange { name: Some(new_name.clone()), visibility: None, default_branch: None };
                let renamed = client.repos_update(&org, &project, &name, &change).send().await?;
                svc.out.empty_response(&renamed, format!("renamed {name} to {new_name}"))
            }
            Self::Delete { name } => {
                let deleted = client.repos_delete(&org, &project, &name).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {name}"))
            }
        }
    }
}

fn row(repo: &Repo) -> [String; 4] {
    [repo.name.clone(), repo.visibility.to_string(), repo.default_branch.clone(), or_dash(url(repo))]
}

/// Returns the URL for clients: over HTTPS if the installation has one.
fn url(repo: &Repo) -> Option<&str> {
    repo.clone_urls.https.as_deref().or(repo.clone_urls.ssh.as_deref())
}
