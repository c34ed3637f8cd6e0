//! Updates of refs, as clients request them and as git passes them to hooks.

use serde::{Deserialize, Serialize};

/// The maximum number of updates of refs in one push.
pub const MAX_UPDATES: usize = 2_000;
/// The maximum length of a ref's name, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// An update of a ref.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    pub name: String,
    /// `None` for a new ref.
    pub old: Option<String>,
    /// `None` for a deleted ref.
    pub new: Option<String>,
}

/// An update is refused. Contains the reason for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUpdate {
    #[error("A push can update {MAX_UPDATES} refs. Push fewer refs at once.")]
    TooMany,
    #[error("The update of a ref is malformed.")]
    Malformed,
    #[error("The name of a ref is not UTF-8. Rename the ref.")]
    NotUtf8,
    #[error("The name of a ref is longer than {MAX_NAME_BYTES} bytes.")]
    LongName,
    #[error("{0} is not a name for a branch or tag.")]
    Name(String),
    #[error("The push updates {0} twice.")]
    Duplicate(String),
}

impl Update {
    /// Parses `<old> <new> <name>`. Returns `None` for a symbolic ref, which has `ref:` and a name instead of an object
    /// id.
    ///
    /// # Errors
    /// Returns an error if the text is malformed, or if the node does not accept the name.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, InvalidUpdate> {
        let text = str::from_utf8(text).map_err(|_| InvalidUpdate::NotUtf8)?;
        let mut fields = text.splitn(3, ' ');
        let (Some(old), Some(new), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(InvalidUpdate::Malformed);
        };
        if name.len() > MAX_NAME_BYTES {
            return Err(InvalidUpdate::LongName);
        }
        let is_object = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_object(old) || !is_object(new) {
            return Ok(None);
        }
        let object = |id: &str| id.bytes().any(|byte| byte != b'0').then(|| id.to_owned());
        let update = Self { name: name.to_owned(), old: object(old), new: object(new) };
        // git itself would not create a branch or tag with this name.
        let is_option = |name: &str| name.starts_with('-') || name == "HEAD";
        if update.new.is_some() && name.splitn(3, '/').nth(2).is_some_and(is_option) {
            return Err(InvalidUpdate::Name(update.name));
        }
        Ok(Some(update))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const NONE: &str = "0000000000000000000000000000000000000000";

    #[test]
    fn updates_are_parsed() {
        let parse = |old: &str, new: &str| Update::parse(format!("{old} {new} refs/heads/a b").as_bytes()).unwrap();
        let created = parse(NONE, A).unwrap();
        assert_eq!((created.name.as_str(), created.old, created.new.as_deref()), ("refs/heads/a b", None, Some(A)));
        assert_eq!(parse(A, NONE).unwrap().new, None);
        let unchanged = parse(A, A).unwrap();
        assert_eq!(unchanged.old, unchanged.new);
        assert_eq!(parse(A, "ref:refs/heads/main"), None);
        for name in ["refs/heads/-x", "refs/tags/--upload-pack=x", "refs/heads/HEAD"] {
            let created = Update::parse(format!("{NONE} {A} {name}").as_bytes());
            assert_eq!(created, Err(InvalidUpdate::Name(name.to_owned())));
            assert!(Update::parse(format!("{A} {NONE} {name}").as_bytes()).is_ok(), "{name}");
        }
        assert_eq!(Update::parse(b"1111 2222"), Err(InvalidUpdate::Malformed));
        assert_eq!(Update::parse(b"1111 2222 refs/\xff"), Err(InvalidUpdate::NotUtf8));
        let long = format!("{A} {NONE} {}", "n".repeat(1025));
        assert_eq!(Update::parse(long.as_bytes()), Err(InvalidUpdate::LongName));
    }
}
