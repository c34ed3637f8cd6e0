//! Git repositories of a project.
//!
//! Written by `cargo xtask codegen` from `docs/openapi.json`.

use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::shared::{Time, UserId};
use crate::{Call, Client, Page, Paging, open_enum};

/// 1 to 200 characters that git allows in the name of a branch
pub type BranchName = String;

/// The URLs of a repository for git.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CloneUrls {
    /// Null if the installation does not serve git over HTTPS.
    pub https: Option<String>,
    /// Null if the installation does not serve git over SSH.
    pub ssh: Option<String>,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Commit {
    pub author: Person,
    pub committer: Person,
    /// The message, decoded from the encoding that the commit states. Bytes that are invalid in this encoding become
    /// U+FFFD. A message above 16 KiB is cut.
    pub message: String,
    pub oid: String,
    /// The ids of the first 1,000 parents.
    pub parents: Vec<String>,
}

pub type CommitPage = Page<Commit>;

open_enum! {
    pub enum DeployStatus {
        Pending = "pending",
        Deployed = "deployed",
        Rejected = "rejected",
    }
}

open_enum! {
    pub enum EntryType {
        Blob = "blob",
        Tree = "tree",
        Commit = "commit",
        Symlink = "symlink",
    }
}

/// A repository to create.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewRepo {
    /// `main` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<BranchName>,
    /// Pushes to this branch are deployed. Null by default: no push is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_branch: Option<BranchName>,
    pub name: RepoName,
    /// `private` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
}

/// The author or committer, as stated in the commit. git does not verify it. A name or address above 1 KiB is cut.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    pub at: Time,
    pub email: String,
    pub name: String,
}

/// The deploy of a push.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushDeploy {
    /// The reason why the push was rejected.
    pub message: Option<String>,
    pub status: DeployStatus,
    /// The version of the project that the push became; null if it was not deployed.
    pub version: Option<i32>,
}

/// A branch or a tag.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefTarget {
    /// The id of the commit. For an annotated tag, the commit that it points to.
    pub commit: String,
    /// The name without `refs/heads/` or `refs/tags/`.
    pub name: String,
}

/// An update of a ref that the git node accepted.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefUpdate {
    pub created_at: Time,
    /// The deploy of the new commit; null if the ref was not the deploy branch.
    pub deploy: Option<PushDeploy>,
    /// Whether the update removed commits from a branch. Always false for other refs.
    pub forced: bool,
    /// The object id after the update; null for a deleted ref. For an annotated tag, the id of the tag object.
    pub new: Option<String>,
    /// The object id before the update; null for a new ref. `git fetch` and browsing accept it as long as the update is
    /// listed.
    pub old: Option<String>,
    /// The user who pushed.
    pub pusher: Option<UserId>,
    /// The full name of the ref, such as `refs/heads/main`.
    pub r#ref: String,
}

pub type RefUpdatePage = Page<RefUpdate>;

/// A repository.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Repo {
    pub clone_urls: CloneUrls,
    pub created_at: Time,
    /// The branch that `HEAD` points to. It need not exist.
    pub default_branch: BranchName,
    /// Pushes to this branch are deployed as the pushing user, if the root of the commit contains an `svc.json`. Null
    /// if pushes are not deployed.
    pub deploy_branch: Option<BranchName>,
    pub id: RepositoryId,
    pub name: RepoName,
    pub updated_at: Time,
    pub visibility: Visibility,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepoBlob {
    /// Whether the file is not UTF-8, or has a NUL among its first 8,000 bytes.
    pub binary: bool,
    pub commit: String,
    /// The text of the file. Null if the file is too large or binary. For a symbolic link, its target.
    pub contents: Option<String>,
    pub oid: String,
    pub path: String,
    /// In bytes.
    pub size: i64,
    /// Whether the file is larger than 1 MiB, so that it was not read.
    pub too_large: bool,
}

/// A change of a repository. Absent fields keep their values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RepoChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_branch: Option<BranchName>,
    /// The branch whose pushes are deployed. Null turns deploys off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deploy_branch: Option<BranchName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<RepoName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
}

/// 1 to 64 characters of a-z, 0-9, ., _ and -, beginning with a letter or a digit, not ending with .git
pub type RepoName = String;

pub type RepoPage = Page<Repo>;

/// The branches and tags of a repository.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepoRefs {
    /// Sorted by name.
    pub branches: Vec<RefTarget>,
    pub default_branch: BranchName,
    /// Sorted by name.
    pub tags: Vec<RefTarget>,
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepoTree {
    pub commit: String,
    /// At most 1,000 entries, in the order of git.
    pub entries: Vec<TreeEntry>,
    pub path: String,
    /// Whether the directory has more entries.
    pub truncated: bool,
}

/// an id that starts with rep_
pub type RepositoryId = String;

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeEntry {
    /// The mode as six octal digits, as git shows it.
    pub mode: String,
    pub name: String,
    pub oid: String,
    /// The size of a file in bytes; null for other entries.
    pub size: Option<i64>,
    pub r#type: EntryType,
}

open_enum! {
    pub enum Visibility {
        Private = "private",
        Public = "public",
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReposBlobQuery {
    /// The path of a file or directory; the root if absent.
    pub path: Option<String>,
    /// A branch, a tag, or a commit id of at least 7 characters; the default branch if absent.
    pub r#ref: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReposCommitsQuery {
    /// The path of a file or directory; the root if absent.
    pub path: Option<String>,
    /// A branch, a tag, or a commit id of at least 7 characters; the default branch if absent.
    pub r#ref: Option<String>,
    /// The largest number of items to return. Values above 200 count as 200.
    pub limit: Option<i64>,
    /// The `nextCursor` of the previous page.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ReposTreeQuery {
    /// The path of a file or directory; the root if absent.
    pub path: Option<String>,
    /// A branch, a tag, or a commit id of at least 7 characters; the default branch if absent.
    pub r#ref: Option<String>,
}

impl Client {
    /// Read a file of a repository
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/blob`
    pub fn repos_blob(
        &self,
        org_slug: &str,
        project_name: &str,
        repo_name: &str,
        query: &ReposBlobQuery,
    ) -> Call<RepoBlob> {
        self.operation(
            "repos.blob",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name, "blob"],
        )
        .query("path", query.path.as_ref())
        .query("ref", query.r#ref.as_ref())
    }

    /// List the commits of a branch, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/commits`
    pub fn repos_commits(
        &self,
        org_slug: &str,
        project_name: &str,
        repo_name: &str,
        query: &ReposCommitsQuery,
    ) -> Call<CommitPage> {
        self.operation(
            "repos.commits",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name, "commits"],
        )
        .query("path", query.path.as_ref())
        .query("ref", query.r#ref.as_ref())
        .query("limit", query.limit.as_ref())
        .query("cursor", query.cursor.as_ref())
    }

    /// Create an empty repository
    ///
    /// `POST /v1/orgs/{orgSlug}/projects/{projectName}/repos`
    pub fn repos_create(&self, org_slug: &str, project_name: &str, body: &NewRepo) -> Call<Repo> {
        self.operation("repos.create", Method::POST, &["v1", "orgs", org_slug, "projects", project_name, "repos"])
            .idempotent()
            .json(body)
    }

    /// Delete a repository, and release its name
    ///
    /// `DELETE /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}`
    pub fn repos_delete(&self, org_slug: &str, project_name: &str, repo_name: &str) -> Call<()> {
        self.operation(
            "repos.delete",
            Method::DELETE,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name],
        )
    }

    /// Get a repository
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}`
    pub fn repos_get(&self, org_slug: &str, project_name: &str, repo_name: &str) -> Call<Repo> {
        self.operation(
            "repos.get",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name],
        )
    }

    /// List the repositories of a project, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos`
    pub fn repos_list(&self, org_slug: &str, project_name: &str, query: &Paging) -> Call<RepoPage> {
        self.operation("repos.list", Method::GET, &["v1", "orgs", org_slug, "projects", project_name, "repos"])
            .query("limit", query.limit.as_ref())
            .query("cursor", query.cursor.as_ref())
    }

    /// List the 200 most recent updates of refs, newest first
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/ref-updates`
    pub fn repos_ref_updates(&self, org_slug: &str, project_name: &str, repo_name: &str) -> Call<RefUpdatePage> {
        self.operation(
            "repos.ref_updates",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name, "ref-updates"],
        )
    }

    /// List the branches and tags of a repository
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/refs`
    pub fn repos_refs(&self, org_slug: &str, project_name: &str, repo_name: &str) -> Call<RepoRefs> {
        self.operation(
            "repos.refs",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name, "refs"],
        )
    }

    /// List a directory of a repository
    ///
    /// `GET /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}/tree`
    pub fn repos_tree(
        &self,
        org_slug: &str,
        project_name: &str,
        repo_name: &str,
        query: &ReposTreeQuery,
    ) -> Call<RepoTree> {
        self.operation(
            "repos.tree",
            Method::GET,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name, "tree"],
        )
        .query("path", query.path.as_ref())
        .query("ref", query.r#ref.as_ref())
    }

    /// Change the name, the visibility or the default branch of a repository
    ///
    /// `PATCH /v1/orgs/{orgSlug}/projects/{projectName}/repos/{repoName}`
    pub fn repos_update(&self, org_slug: &str, project_name: &str, repo_name: &str, body: &RepoChange) -> Call<()> {
        self.operation(
            "repos.update",
            Method::PATCH,
            &["v1", "orgs", org_slug, "projects", project_name, "repos", repo_name],
        )
        .json(body)
    }
}
