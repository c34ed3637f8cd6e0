//! Validates the name of one entry.

use crate::header::EntryKind;
use crate::{MANIFEST_PATH, Reason};

/// The longest path, without a leading `./`.
pub const MAX_NAME_BYTES: usize = 1024;

/// Converts an entry's name to a path: relative, UTF-8, without empty and dot segments, and without the trailing slash
/// of a directory. Returns `None` for the root directory, which `tar c .` adds.
pub(crate) fn parse(name: &[u8], kind: EntryKind) -> Result<Option<&str>, Reason> {
    let name = std::str::from_utf8(name).map_err(|_| Reason::NameNotUtf8)?;
    let directory = kind == EntryKind::Directory;
    if directory && matches!(name, "." | "./") {
        return Ok(None);
    }
    let path = name.strip_prefix("./").unwrap_or(name);
    let path = if directory { path.strip_suffix('/').unwrap_or(path) } else { path };
    check_syntax(path)?;
    check_location(path, directory)?;
    Ok(Some(path))
}

fn check_syntax(path: &str) -> Result<(), Reason> {
    if path.len() > MAX_NAME_BYTES {
        return Err(Reason::NameTooLong);
    }
    if path.contains(char::is_control) {
        return Err(Reason::ControlCharacter);
    }
    if path.contains('\\') {
        return Err(Reason::Backslash);
    }
    if path.starts_with('/') {
        return Err(Reason::AbsolutePath);
    }
    path.split('/').try_for_each(|segment| match segment {
        "" => Err(Reason::EmptySegment),
        "." | ".." => Err(Reason::DotSegment),
        _ => Ok(()),
    })
}

fn check_location(path: &str, directory: bool) -> Result<(), Reason> {
    let allowed = match path.split_once('/') {
        Some((top, _)) => matches!(top, "worker" | "assets"),
        None if directory => matches!(path, "worker" | "assets"),
        None => path == MANIFEST_PATH,
    };
    if allowed { Ok(()) } else { Err(Reason::UnexpectedPath) }
}
