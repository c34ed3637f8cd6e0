//! The responses.

use serde::Serialize;

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refs {
    pub branches: Vec<Target>,
    pub tags: Vec<Target>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Target {
    pub name: String,
    pub commit: String,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    pub commit: String,
    pub path: String,
    pub entries: Vec<Entry>,
    pub truncated: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub mode: String,
    pub oid: String,
    pub size: Option<u64>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    pub commit: String,
    pub path: String,
    pub oid: String,
    pub size: u64,
    pub too_large: bool,
    pub binary: bool,
    pub contents: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Commits {
    pub items: Vec<Commit>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Commit {
    pub oid: String,
    pub message: String,
    pub author: Person,
    pub committer: Person,
    pub parents: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Person {
    pub name: String,
    pub email: String,
    pub at: String,
}
