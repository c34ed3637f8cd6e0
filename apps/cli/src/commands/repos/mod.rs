//! `svc repos`: the git repositories of a project.

mod browse;

use std::time::Duration;

use client::types::{NewRepo, Repo, RepoChange, Visibility};
use client::{Client, Method};
use serde_json::json;
use tokio::time::timeout;

use self::browse::{Log, Place};
use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{fields, or_dash};
use crate::prompt;
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
        /// Deploy each push to this branch
        #[arg(long, value_name = "BRANCH")]
        deploy_branch: Option<String>,
    },
    /// Show a repository
    Show { name: String },
    /// Let everyone read a repository, or only the members of the organization
    Visibility {
        name: String,
        #[arg(value_parser = ["private", "public"])]
        visibility: String,
    },
    /// Change the branch that `HEAD` names
    DefaultBranch { name: String, branch: String },
    /// Deploy each push to a branch, or show that branch
    DeployBranch {
        name: String,
        #[arg(conflicts_with = "off")]
        branch: Option<String>,
        /// Deploy no pushes
        #[arg(long)]
        off: bool,
    },
    /// List the branches and tags of a repository
    Refs { name: String },
    /// List the commits of a branch, newest first
    Log(Log),
    /// List a directory of a repository
    Tree {
        name: String,
        /// Path of the directory (default: the root)
        path: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Print a file of a repository
    Cat {
        name: String,
        /// Path of the file
        path: String,
        #[command(flatten)]
        place: Place,
    },
    /// List the latest updates of refs, newest first. A commit that a forced push removed is in the column OLD
    Updates { name: String },
    /// Rename a repository. Nothing redirects from the old name
    Rename { name: String, new_name: String },
    /// Delete a repository. Its contents are erased after 30 days
    Delete {
        name: String,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
    },
}

/// How long `svc` waits for the branches of a repository.
const REFS_TIMEOUT: Duration = Duration::from_secs(3);

const NO_CHANGE: RepoChange = RepoChange { name: None, visibility: None, default_branch: None, deploy_branch: None };

impl Repos {
    pub async fn run(self, svc: &Svc<'_>) -> Result<(), CliError> {
        let (org, project) = svc.project()?;
        let client = svc.client()?;
        match self {
            Self::List(page) => {
                let page = client.repos_list(&org, &project, &page.paging()).send().await?;
                svc.out.page(&page, ["NAME", "VISIBILITY", "BRANCH", "DEPLOYS", "URL"], row)
            }
            Self::Create { name, public, default_branch, deploy_branch } => {
                let visibility = public.then(|| Visibility::from("public"));
                let new = NewRepo { name, visibility, default_branch, deploy_branch };
                let repo = client.repos_create(&org, &project, &new).send().await?;
                svc.out.response(&repo, |repo| or_dash(url(repo)))?;
                svc.out.success(format!("created the repository {}", repo.name));
                if url(&repo).is_none() {
                    svc.out.warn("this platform has no address for repositories: ask its operator");
                    return Ok(());
                }
                if let Some(branch) = &repo.deploy_branch {
                    svc.out.info(format!("A push to {branch} is deployed."));
                }
                svc.out.info("Push with a token of the scope git:write as the password, or with a registered SSH key.");
                Ok(())
            }
            Self::Show { name } => svc.out.response(&client.repos_get(&org, &project, &name).send().await?, show),
            Self::Visibility { name, visibility } => {
                let message = format!("{name} is {visibility}");
                let change = RepoChange { visibility: Some(Visibility::from(visibility.as_str())), ..NO_CHANGE };
                update(svc, &client, (&org, &project, &name), &change, message).await
            }
            Self::DefaultBranch { name, branch } => {
                let message = format!("the default branch of {name} is {branch}");
                let change = RepoChange { default_branch: Some(branch.clone()), ..NO_CHANGE };
                update(svc, &client, (&org, &project, &name), &change, message).await?;
                note_missing_branch(svc, &client, (&org, &project, &name), &branch).await;
                Ok(())
            }
            Self::Refs { name } => browse::refs(svc, &client, (&org, &project, &name)).await,
            Self::Log(log) => log.run(svc, &client, (&org, &project)).await,
            Self::Tree { name, path, place } => {
                browse::tree(svc, &client, (&org, &project, &name), (path, place)).await
            }
            Self::Cat { name, path, place } => browse::file(svc, &client, (&org, &project, &name), (path, place)).await,
            Self::Updates { name } => browse::updates(svc, &client, (&org, &project, &name)).await,
            Self::DeployBranch { name, branch: None, off: false } => {
                let repo = client.repos_get(&org, &project, &name).send().await?;
                svc.out.response(&repo, |repo| or_dash(repo.deploy_branch.as_deref()))
            }
            Self::DeployBranch { name, branch, .. } => {
                // An absent field keeps its value, so the change contains null.
                let path = ["v1", "orgs", &org, "projects", &project, "repos", &name];
                let change = json!({ "deployBranch": branch });
                let changed = client.call::<()>(Method::PATCH, &path).json(&change).send().await?;
                let message = match branch {
                    Some(branch) => format!("a push to {branch} of {name} is deployed"),
                    None => format!("pushes to {name} are not deployed"),
                };
                svc.out.empty_response(&changed, message)
            }
            Self::Rename { name, new_name } => {
                let message = format!("renamed {name} to {new_name}");
                let change = RepoChange { name: Some(new_name), ..NO_CHANGE };
                update(svc, &client, (&org, &project, &name), &change, message).await
            }
            Self::Delete { name, yes } => {
                prompt::require_yes(yes, &format!("Delete the repository {org}/{project}/{name}?"), "deleted")?;
                let deleted = client.repos_delete(&org, &project, &name).send().await?;
                svc.out.empty_response(&deleted, format!("deleted {name}"))
            }
        }
    }
}

async fn update(
    svc: &Svc<'_>,
    client: &Client,
    (org, project, name): (&str, &str, &str),
    change: &RepoChange,
    message: String,
) -> Result<(), CliError> {
    svc.out.empty_response(&client.repos_update(org, project, name, change).send().await?, message)
}

/// Prints a note if the repository has branches, but not this one. Prints none if the git node does not respond,
/// because the change does not need it.
async fn note_missing_branch(svc: &Svc<'_>, client: &Client, (org, project, name): (&str, &str, &str), branch: &str) {
    let refs = client.repos_refs(org, project, name).send();
    if let Ok(Ok(refs)) = timeout(REFS_TIMEOUT, refs).await
        && !refs.branches.is_empty()
        && !refs.branches.iter().any(|it| it.name == branch)
    {
        svc.out.info(format!("The branch {branch} does not exist yet: push it, or choose another one."));
    }
}

fn show(repo: &Repo) -> String {
    let Repo { name, visibility, default_branch, deploy_branch, clone_urls, created_at, updated_at, id: _ } = repo;
    fields(&[
        ["name", name],
        ["visibility", visibility.as_str()],
        ["default branch", default_branch],
        ["deploy branch", &or_dash(deploy_branch.as_deref())],
        ["HTTPS", &or_dash(clone_urls.https.as_deref())],
        ["SSH", &or_dash(clone_urls.ssh.as_deref())],
        ["created", created_at],
        ["updated", updated_at],
    ])
}

fn row(repo: &Repo) -> [String; 5] {
    let deploys = or_dash(repo.deploy_branch.as_deref());
    [repo.name.clone(), repo.visibility.to_string(), repo.default_branch.clone(), deploys, or_dash(url(repo))]
}

/// Returns the URL for clients: over HTTPS if the installation has one.
fn url(repo: &Repo) -> Option<&str> {
    repo.clone_urls.https.as_deref().or(repo.clone_urls.ssh.as_deref())
}
