//! The contents of a repository, for browsing. Names and paths that are not UTF-8 are shown with escapes: each invalid
//! byte as `\xHH`. In such a name, a backslash becomes `\\`.

use kernel::Time;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::BranchName;

/// The branches and tags of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RepoRefs {
    pub default_branch: BranchName,
    /// Sorted by name.
    pub branches: Vec<RefTarget>,
    /// Sorted by name.
    pub tags: Vec<RefTarget>,
}

/// A branch or a tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "name": "main",
    "commit": "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7",
})))]
pub struct RefTarget {
    /// The name without `refs/heads/` or `refs/tags/`.
    pub name: String,
    /// The id of the commit. For an annotated tag, the commit that it points to.
    pub commit: String,
}

/// Selects a file or directory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PathQuery {
    /// A branch, a tag, or a commit id of at least 7 characters; the default branch if absent.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 1024, example = "main"))]
    pub name: Option<String>,
    /// The path of a file or directory; the root if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_length = 4096, example = "src"))]
    pub path: Option<String>,
}

/// A directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "commit": "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7",
    "path": "src",
    "truncated": false,
})))]
pub struct RepoTree {
    pub commit: String,
    pub path: String,
    /// At most 1,000 entries, in the order of git.
    pub entries: Vec<TreeEntry>,
    /// Whether the directory has more entries.
    pub truncated: bool,
}

kernel::words! {
    /// The kind of an entry.
    pub enum EntryType {
        /// A file.
        Blob = "blob",
        /// A directory.
        Tree = "tree",
        /// A commit of another repository (submodule).
        Commit = "commit",
        /// A symbolic link.
        Symlink = "symlink",
    } example Blob
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "name": "main.rs",
    "mode": "100644",
    "oid": "8ab686eafeb1f44702738c8b0f24f2567c36da6d",
    "size": 1024,
})))]
pub struct TreeEntry {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: EntryType,
    /// The mode as six octal digits, as git shows it.
    pub mode: String,
    pub oid: String,
    /// The size of a file in bytes; null for other entries.
    #[cfg_attr(feature = "openapi", schema(required, minimum = 0))]
    pub size: Option<u64>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "commit": "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7",
    "path": "README.md",
    "oid": "8ab686eafeb1f44702738c8b0f24f2567c36da6d",
    "size": 6,
    "tooLarge": false,
    "binary": false,
    "contents": "# App\n",
})))]
pub struct RepoBlob {
    pub commit: String,
    pub path: String,
    pub oid: String,
    /// In bytes.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub size: u64,
    /// Whether the file is larger than 1 MiB, so that it was not read.
    pub too_large: bool,
    /// Whether the file is not UTF-8, or has a NUL among its first 8,000 bytes.
    pub binary: bool,
    /// The text of the file. Null if the file is too large or binary. For a symbolic link, its target.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub contents: Option<String>,
}

kernel::text! {
    /// The id of a commit.
    pub struct CommitId matches "^[0-9a-f]{40}$" means "40 hexadecimal digits"
        example "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7"
}

/// A position in a history. The history of a commit never changes, so a position stays valid when branches move.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitPosition {
    /// The commit at which the history starts.
    pub start: CommitId,
    /// The number of commits in front of the position.
    pub skip: u32,
}

impl From<CommitPosition> for Value {
    fn from(CommitPosition { start, skip }: CommitPosition) -> Self {
        json!({ "start": start, "skip": skip })
    }
}

/// A part of a history, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitRange {
    /// The commit at which the history starts.
    pub start: CommitId,
    pub items: Vec<Commit>,
    /// Whether the history continues.
    pub has_more: bool,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({
    "oid": "c1d4f2ab9f0f3a6e2a0c3d8d4ce2b9d1f5f0a6b7",
    "message": "Add the page\n",
    "parents": ["8ab686eafeb1f44702738c8b0f24f2567c36da6d"],
})))]
pub struct Commit {
    pub oid: String,
    /// The message, decoded from the encoding that the commit states. Bytes that are invalid in this encoding become
    /// U+FFFD. A message above 16 KiB is cut.
    pub message: String,
    pub author: Person,
    pub committer: Person,
    /// The ids of the first 1,000 parents.
    pub parents: Vec<String>,
}

/// The author or committer, as stated in the commit. git does not verify it. A name or address above 1 KiB is cut.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(example = json!({ "name": "Ada", "email": "ada@example.org" })))]
pub struct Person {
    pub name: String,
    pub email: String,
    pub at: Time,
}
