//! Reads the contents of a repository without a clone.

use client::Client;
use client::types::{
    Commit, RefUpdate, RepoBlob, RepoRefs, RepoTree, ReposBlobQuery, ReposCommitsQuery, ReposTreeQuery,
};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::{or_dash, table};
use crate::svc::Svc;

/// The repository of a command: organization, project and name.
type Repository<'a> = (&'a str, &'a str, &'a str);

/// A place in a repository
#[derive(clap::Args)]
pub struct Place {
    /// Branch, tag or commit (default: the default branch)
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
}

/// The commits to list
#[derive(clap::Args)]
pub struct Log {
    name: String,
    /// List only the commits that changed this path
    path: Option<String>,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn refs(svc: &Svc<'_>, client: &Client, (org, project, name): Repository<'_>) -> Result<(), CliError> {
    svc.out.response(&client.repos_refs(org, project, name).send().await?, show_refs)
}

impl Log {
    pub async fn run(self, svc: &Svc<'_>, client: &Client, (org, project): (&str, &str)) -> Result<(), CliError> {
        let Self { name, path, place, page } = self;
        let paging = page.paging();
        let query = ReposCommitsQuery { path, r#ref: place.reference, limit: paging.limit, cursor: paging.cursor };
        let page = client.repos_commits(org, project, &name, &query).send().await?;
        svc.out.page(&page, ["COMMIT", "TIME", "AUTHOR", "MESSAGE"], commit_row)
    }
}

/// Lists a directory.
pub async fn tree(
    svc: &Svc<'_>,
    client: &Client,
    (org, project, name): Repository<'_>,
    (path, place): (Option<String>, Place),
) -> Result<(), CliError> {
    let query = ReposTreeQuery { path, r#ref: place.reference };
    let tree = client.repos_tree(org, project, name, &query).send().await?;
    svc.out.response(&tree, show_tree)?;
    if tree.truncated {
        svc.out.warn("the directory has more entries, which the API does not list");
    }
    Ok(())
}

/// Prints a file.
pub async fn file(
    svc: &Svc<'_>,
    client: &Client,
    (org, project, name): Repository<'_>,
    (path, place): (String, Place),
) -> Result<(), CliError> {
    let query = ReposBlobQuery { path: Some(path), r#ref: place.reference };
    let blob = client.repos_blob(org, project, name, &query).send().await?;
    let RepoBlob { path, size, too_large, contents, .. } = &blob.value;
    svc.out.content(&blob, contents.as_deref().unwrap_or_default())?;
    match contents {
        Some(_) => Ok(()),
        None if *too_large => Err(CliError::Other(format!("{path} has {size} bytes: clone the repository to read it"))),
        None => Err(CliError::Other(format!("{path} is not text: clone the repository to read it"))),
    }
}

pub async fn updates(svc: &Svc<'_>, client: &Client, (org, project, name): Repository<'_>) -> Result<(), CliError> {
    let page = client.repos_ref_updates(org, project, name).send().await?;
    svc.out.page(&page, ["TIME", "REF", "OLD", "NEW", "FORCED", "DEPLOY"], update_row)
}

fn show_refs(refs: &RepoRefs) -> String {
    let RepoRefs { branches, default_branch, tags } = refs;
    let branches = branches.iter().map(|branch| {
        let kind = if branch.name == *default_branch { "default branch" } else { "branch" };
        [branch.name.clone(), kind.to_owned(), branch.commit.clone()]
    });
    let tags = tags.iter().map(|tag| [tag.name.clone(), "tag".to_owned(), tag.commit.clone()]);
    table(["NAME", "KIND", "COMMIT"], branches.chain(tags))
}

fn commit_row(commit: &Commit) -> [String; 4] {
    let subject = commit.message.lines().next().unwrap_or_default().to_owned();
    [short(&commit.oid), commit.committer.at.clone(), commit.author.name.clone(), subject]
}

fn show_tree(tree: &RepoTree) -> String {
    let rows = tree.entries.iter().map(|entry| {
        let size = or_dash(entry.size.map(|size| size.to_string()).as_deref());
        [entry.mode.clone(), entry.r#type.to_string(), size, entry.name.clone()]
    });
    table(["MODE", "TYPE", "BYTES", "NAME"], rows)
}

fn update_row(update: &RefUpdate) -> [String; 6] {
    let RefUpdate { created_at, r#ref, old, new, forced, deploy, pusher: _ } = update;
    let deploy = deploy.as_ref().map(|deploy| match (deploy.version, &deploy.message) {
        (Some(version), _) => format!("version {version}"),
        (None, Some(message)) => format!("{}: {message}", deploy.status),
        (None, None) => deploy.status.to_string(),
    });
    // git fetch needs the whole id of an old commit.
    let (old, new) = (or_dash(old.as_deref()), or_dash(new.as_deref().map(short).as_deref()));
    let forced = if *forced { "forced" } else { "" };
    [created_at.clone(), r#ref.clone(), old, new, forced.to_owned(), or_dash(deploy.as_deref())]
}

/// Returns the beginning of an object id, with which the API finds the object.
fn short(oid: &str) -> String {
    oid.chars().take(12).collect()
}
