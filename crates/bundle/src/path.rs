//! What one entry may be called.

use crate::header::Kind;
use crate::{MANIFEST_PATH, Reason};

/// How long a path may be, after a leading `./` is dropped.
pub const NAME_MAX_BYTES: usize = 1024;

/// An entry's name as the path that the rest of the service knows it by: relative, UTF-8, without empty and dot
/// segments, and for a directory without the slash at its end. `None` is the bundle's root itself, as `tar c .` adds it.
pub(crate) fn parse(name: &[u8], kind: Kind) -> Result<Option<&str>, Reason> {
    let name = std::str::from_utf8(name).map_err(|_| Reason::NameNotUtf8)?;
    let directory = kind == Kind::Directory;
    if directory && matches!(name, "." | "./") {
        return Ok(None);
    }
    let path = name.strip_prefix("./").unwrap_or(name);
    let path = if directory { path.strip_suffix('/').unwrap_or(path) } else { path };
    spelled_well(path)?;
    in_its_place(path, directory)?;
    Ok(Some(path))
}

fn spelled_well(path: &str) -> Result<(), Reason> {
    if path.len() > NAME_MAX_BYTES {
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

fn in_its_place(path: &str, directory: bool) -> Result<(), Reason> {
    let allowed = match path.split_once('/') {
        Some((top, _)) => matches!(top, "worker" | "assets"),
        None if directory => matches!(path, "worker" | "assets"),
        None => path == MANIFEST_PATH,
    };
    if allowed { Ok(()) } else { Err(Reason::UnexpectedPath) }
}
