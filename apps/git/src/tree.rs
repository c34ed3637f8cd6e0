//! The tree of a commit as a folder that can be packed.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use bundle::Reason;
use bundle::pack::{Entry, Folder, Kind};

use crate::objects::ObjectReader;

/// The maximum size of a commit object that is read, in bytes.
const MAX_COMMIT_BYTES: u64 = 4 << 20;
/// The maximum size of a directory object that is read, in bytes. About 200,000 entries fit.
const MAX_TREE_BYTES: u64 = 8 << 20;
/// The maximum size of an ignore file, in bytes.
const MAX_IGNORE_FILE_BYTES: u64 = 256 << 10;

/// The tree of a commit.
pub struct CommitTree {
    objects: ObjectReader,
    /// The id of the root tree.
    root: String,
    /// The first line of the commit's message.
    pub message: String,
}

impl CommitTree {
    /// Reads a commit.
    pub fn open(mut objects: ObjectReader, commit: &str) -> io::Result<Self> {
        let commit = objects.read(commit, "commit", MAX_COMMIT_BYTES)?;
        let commit = String::from_utf8_lossy(&commit);
        let (header, message) = commit.split_once("\n\n").unwrap_or((&commit, ""));
        let root = header.lines().find_map(|line| line.strip_prefix("tree "));
        let root = root.ok_or_else(|| io::Error::other("the commit has no tree"))?.to_owned();
        let message = message.trim_start().lines().next().unwrap_or_default().to_owned();
        Ok(Self { objects, root, message })
    }
}

impl Folder for CommitTree {
    /// The id of an object.
    type Id = String;

    fn list(&mut self, _: &Path, id: Option<&String>) -> io::Result<Vec<Entry<String>>> {
        let id = id.unwrap_or(&self.root);
        let tree = self.objects.read(id, "tree", MAX_TREE_BYTES)?;
        parse(&tree, id.len() / 2).ok_or_else(|| io::Error::other("the directory is malformed"))
    }

    fn open(&mut self, _: &Path, id: &String) -> io::Result<(u64, impl Read)> {
        let object = self.objects.open(id)?;
        if object.kind != "blob" {
            return Err(io::Error::other("it is not a file"));
        }
        Ok((object.size, self.objects.content()))
    }

    fn read_ignore_file(&mut self, _: &Path, entry: &Entry<String>) -> io::Result<String> {
        if entry.kind != Kind::File {
            return Err(io::Error::other("it is not a file"));
        }
        let text = self.objects.read(&entry.id, "blob", MAX_IGNORE_FILE_BYTES)?;
        String::from_utf8(text).map_err(|_| io::Error::other("it is not UTF-8"))
    }
}

/// Parses a tree object: entries that consist of a mode, a space, a name, a NUL and an id. Returns `None` if it is
/// malformed.
fn parse(mut tree: &[u8], id_bytes: usize) -> Option<Vec<Entry<String>>> {
    let mut entries = Vec::new();
    while !tree.is_empty() {
        let space = tree.iter().position(|byte| *byte == b' ')?;
        let (mode, rest) = tree.split_at(space);
        let rest = rest.get(1..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (name, rest) = rest.split_at(end);
        let (id, rest) = rest.get(1..)?.split_at_checked(id_bytes)?;
        let kind = match mode {
            b"40000" => Kind::Directory,
            b"120000" => Kind::Other(Reason::SymbolicLink),
            b"160000" => Kind::Other(Reason::Submodule),
            _ if mode.starts_with(b"100") => Kind::File,
            _ => Kind::Other(Reason::UnknownType),
        };
        let id = id.iter().map(|byte| format!("{byte:02x}")).collect();
        entries.push(Entry { name: OsString::from_vec(name.to_vec()), kind, id });
        tree = rest;
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_parsed() {
        let entry = |mode: &str, name: &str| [mode.as_bytes(), b" ", name.as_bytes(), b"\0", &[0xab; 20]].concat();
        let modes = ["100644", "100755", "40000", "120000", "160000", "7"];
        let tree: Vec<u8> = modes.iter().flat_map(|mode| entry(mode, "a b")).collect();
        let entries = parse(&tree, 20).unwrap();
        let kinds: Vec<Kind> = entries.iter().map(|entry| entry.kind).collect();
        let other = |reason| Kind::Other(reason);
        let (link, submodule) = (other(Reason::SymbolicLink), other(Reason::Submodule));
        assert_eq!(kinds, [Kind::File, Kind::File, Kind::Directory, link, submodule, other(Reason::UnknownType)]);
        assert!(entries.iter().all(|entry| entry.name == "a b" && entry.id == "ab".repeat(20)));
        assert!(parse(&tree[..tree.len() - 1], 20).is_none() && parse(b"100644 a", 20).is_none());
    }
}
