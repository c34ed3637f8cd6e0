//! Repositories and ref updates.

use kernel::{InvalidText, RepositoryId, Time, UserId};
use serde::{Deserialize, Deserializer, Serialize};
use validator::Validate;

kernel::text! {
    /// The name of a repository in its project.
    pub struct RepoName matches "^[a-z0-9][a-z0-9._-]{0,63}$"
        means "1 to 64 characters of a-z, 0-9, ., _ and -, beginning with a letter or a digit, not ending with .git"
        format "repository-name" checked by check_suffix
        example "app"
}

/// Rejects a name that ends with `.git`, which is an optional suffix in a repository's URL.
fn check_suffix(name: &str) -> Result<(), InvalidText> {
    match name.ends_with(".git") {
        true => Err(InvalidText::Forbidden("end with .git")),
        false => Ok(()),
    }
}

kernel::text! {
    /// The name of a branch, without `refs/heads/`.
    pub struct BranchName matches r"^[^\x00-\x20\x7f~^:?*\[\\]{1,200}$"
        means "1 to 200 characters that git allows in the name of a branch"
        format "branch-name" checked by check_branch
        example "main"
}

/// Rejects a name that git does not accept for a branch.
fn check_branch(name: &str) -> Result<(), InvalidText> {
    match is_ref_name(name) {
        true => Ok(()),
        false => Err(InvalidText::Malformed("a name that git accepts for a branch")),
    }
}

/// The maximum length of the name of a ref in bytes. The git node accepts no longer ones.
const MAX_REF_NAME_BYTES: usize = 1024;

/// Returns whether git accepts the name for a branch or a tag (git-check-ref-format). Commit ids also have this form.
pub(crate) fn is_ref_name(name: &str) -> bool {
    let is_forbidden = |c: char| c <= ' ' || c == '\x7f' || r"~^:?*[\".contains(c);
    let is_valid_component = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.len() <= MAX_REF_NAME_BYTES
        && !name.contains(is_forbidden)
        && name.split('/').all(is_valid_component)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !matches!(name, "@" | "HEAD")
}

kernel::words! {
    /// The visibility of a repository, which decides who can read it.
    pub enum Visibility {
        /// Only the members of the organization.
        Private = "private",
        /// Everyone, even without an account. Only members can push.
        Public = "public",
    } example Private
}

/// A repository to create.
#[derive(Debug, Clone, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewRepo {
    pub name: RepoName,
    /// `private` by default.
    #[serde(default)]
    pub visibility: Option<Visibility>,
    /// `main` by default.
    #[serde(default)]
    pub default_branch: Option<BranchName>,
    /// Pushes to this branch are deployed. Null by default: no push is deployed.
    #[serde(default)]
    pub deploy_branch: Option<BranchName>,
}

/// A change of a repository. Absent fields keep their values.
#[derive(Debug, Clone, Default, Deserialize, Validate)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepoChange {
    #[serde(default)]
    pub name: Option<RepoName>,
    #[serde(default)]
    pub visibility: Option<Visibility>,
    #[serde(default)]
    pub default_branch: Option<BranchName>,
    /// The branch whose pushes are deployed. Null turns deploys off.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<BranchName>))]
    pub deploy_branch: Option<Option<BranchName>>,
}

/// Distinguishes a null from an absent field.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Repo {
    pub id: RepositoryId,
    pub name: RepoName,
    pub visibility: Visibility,
    /// The branch that `HEAD` points to. It need not exist.
    pub default_branch: BranchName,
    /// Pushes to this branch are deployed as the pushing user, if the root of the commit contains an `svc.json`. Null
    /// if pushes are not deployed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub deploy_branch: Option<BranchName>,
    pub clone_urls: CloneUrls,
    pub created_at: Time,
    pub updated_at: Time,
}

/// The URLs of a repository for git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "https": "https://git.example.org/acme/site/app.git",
    "ssh": "ssh://git@git.example.org/acme/site/app.git",
})))]
pub struct CloneUrls {
    /// Null if the installation does not serve git over HTTPS.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub https: Option<String>,
    /// Null if the installation does not serve git over SSH.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub ssh: Option<String>,
}

/// An update of a ref that the git node accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "ref": "refs/heads/main",
    "old": "8ab686eafeb1f44702738c8b0f24f2567c36da6d",
    "new": "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7",
    "forced": false,
})))]
pub struct RefUpdate {
    /// The full name of the ref, such as `refs/heads/main`.
    #[serde(rename = "ref")]
    pub name: String,
    /// The object id before the update; null for a new ref. `git fetch` and browsing accept it as long as the update is
    /// listed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub old: Option<String>,
    /// The object id after the update; null for a deleted ref. For an annotated tag, the id of the tag object.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub new: Option<String>,
    /// Whether the update removed commits from a branch. Always false for other refs.
    pub forced: bool,
    /// The user who pushed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub pusher: Option<UserId>,
    /// The deploy of the new commit; null if the ref was not the deploy branch.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub deploy: Option<PushDeploy>,
    pub created_at: Time,
}

kernel::words! {
    /// The state of a push's deploy.
    pub enum DeployStatus {
        /// The git node is deploying it, or will retry after a failure.
        Pending = "pending",
        Deployed = "deployed",
        /// It cannot be deployed.
        Rejected = "rejected",
    } example Deployed
}

/// The deploy of a push.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "version": 7, "message": null })))]
pub struct PushDeploy {
    pub status: DeployStatus,
    /// The version of the project that the push became; null if it was not deployed.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub version: Option<i32>,
    /// The reason why the push was rejected.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_repositories_follow_the_contract() {
        for name in ["a", "0", "app", "my.app", "a_b-c", "a..b", &"a".repeat(64)] {
            assert!(name.parse::<RepoName>().is_ok(), "{name}");
        }
        for name in ["", "app.git", ".", "..", "-a", "_a", ".a", "A", "a/b", "a b", "é", &"a".repeat(65)] {
            assert!(name.parse::<RepoName>().is_err(), "{name}");
        }
    }

    /// The rules of git-check-ref-format.
    #[test]
    fn names_of_branches_follow_the_rules_of_git() {
        let is_valid = |name: &str| name.parse::<BranchName>().is_ok();
        for name in ["main", "feature/a", "a@b", "é", "v1.0", "a-b", "HEAD/a", "x{y"] {
            assert!(is_valid(name), "{name}");
        }
        for name in [
            "", "HEAD", "@", "-a", "a..b", "a//b", "/a", "a/", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "a@{b", "a b",
            "a~", "a^", "a:", "a?", "a*", "a[", "a\\b", "a\u{7f}", "a\n",
        ] {
            assert!(!is_valid(name), "{name}");
        }
    }
}
