//! The responses. The control plane adds the default branch, and returns them in its API; `git::model::browse` has the
//! same fields. Ids of objects are hexadecimal, and names and paths contain escapes for bytes that are not UTF-8.

use serde::Serialize;

/// The branches and tags, each sorted by name.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refs {
    pub branches: Vec<Target>,
    pub tags: Vec<Target>,
}

/// A branch or a tag, without `refs/heads/` or `refs/tags/`, and the commit that it points to.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    pub name: String,
    pub commit: String,
}

/// A directory, with its first entries in the order of git.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    pub commit: String,
    pub path: String,
    pub entries: Vec<Entry>,
    /// Whether the directory has more entries.
    pub truncated: bool,
}

/// An entry of a directory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub name: String,
    /// `blob`, `tree`, `commit` or `symlink`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Six octal digits.
    pub mode: String,
    pub oid: String,
    /// The size of a file in bytes.
    pub size: Option<u64>,
}

/// A file.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    pub commit: String,
    pub path: String,
    pub oid: String,
    /// In bytes.
    pub size: u64,
    pub too_large: bool,
    pub binary: bool,
    /// The text, unless the file is too large or binary.
    pub contents: Option<String>,
}

/// A part of a history, newest first.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Commits {
    /// The commit at which the history starts.
    pub start: String,
    pub items: Vec<Commit>,
    /// Whether the history continues.
    pub has_more: bool,
}

/// A commit. Its message, the texts of its persons and its parents can be cut.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Commit {
    pub oid: String,
    pub message: String,
    pub author: Person,
    pub committer: Person,
    pub parents: Vec<String>,
}

/// The author or the committer.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Person {
    pub name: String,
    pub email: String,
    /// A time in the format of RFC 3339.
    pub at: String,
}
