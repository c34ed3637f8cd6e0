//! Paths and names in a tree. A name can have bytes that are not UTF-8.

use gix::bstr::{BStr, ByteSlice as _};

/// Returns the names in a path; `None` if the path leaves the tree.
pub(super) fn components(path: &str) -> Option<Vec<&str>> {
    let mut components = Vec::new();
    for component in path.split('/') {
        match component {
            "" | "." => {}
            ".." => {
                components.pop()?;
            }
            name => components.push(name),
        }
    }
    Some(components)
}

/// Returns a name as text. Bytes that are not UTF-8 become `\xHH`. In a name with such bytes, a backslash becomes `\\`.
pub(super) fn escape(name: &BStr) -> String {
    if let Ok(name) = name.to_str() {
        return name.to_owned();
    }
    let mut escaped = String::new();
    for chunk in name.utf8_chunks() {
        escaped.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            escaped.push_str(&format!("\\x{byte:02x}"));
        }
    }
    escaped
}

/// Returns the bytes of an escaped name; `None` if the name is not the escaped form of a name that is not UTF-8.
pub(super) fn unescape(name: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
        } else if let Some(after) = rest.strip_prefix(b"\\") {
            bytes.push(b'\\');
            rest = after;
        } else {
            let hex = str::from_utf8(rest.strip_prefix(b"x")?.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok().filter(|byte| !byte.is_ascii())?);
            rest = rest.get(3..)?;
        }
    }
    str::from_utf8(&bytes).is_err().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_leave_the_tree() {
        assert_eq!(components(""), Some(vec![]));
        assert_eq!(components("/a//./b/../c/"), Some(vec!["a", "c"]));
        assert_eq!(components("a/../.."), None);
    }

    #[test]
    fn names_that_are_not_utf8_are_escaped_and_found() {
        for name in [&b"caf\xe9"[..], b"a\\b\xff", b"\xff\xfe"] {
            let escaped = escape(name.as_bstr());
            assert_eq!(unescape(&escaped).unwrap(), name, "{escaped}");
        }
        assert_eq!(escape(b"a\\x41".as_bstr()), "a\\x41");
        for literal in ["plain", "a\\", "a\\x41", "\\xc3\\xa9", "\\x00\\xff"] {
            assert_eq!(unescape(literal), None, "{literal}");
        }
    }
}
