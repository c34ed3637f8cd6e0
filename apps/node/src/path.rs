//! Paths of requests, and paths to which visitors are redirected.

/// Decodes `%xx` exactly once. Returns `None` for invalid escapes, invalid UTF-8, NUL, backslashes, the segments `.`
/// and `..`, escaped slashes and double slashes. A double slash could make the redirect to a directory lead to another
/// host.
pub fn decode(raw: &str) -> Option<String> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        let escaped = match byte {
            b'%' => Some(nibble(rest.next()?)? << 4 | nibble(rest.next()?)?),
            _ => None,
        };
        if escaped == Some(b'/') {
            return None;
        }
        decoded.push(escaped.unwrap_or(byte));
    }
    let path = String::from_utf8(decoded).ok()?;
    let is_plain = path.starts_with('/')
        && !path.contains("//")
        && !path.contains(['\0', '\\'])
        && !path.split('/').any(|segment| matches!(segment, "." | ".."));
    is_plain.then_some(path)
}

/// Returns `next` if every client reads it as a path of this host (security rules, "OAuth"), otherwise `/`.
pub fn local_path(next: &str) -> &str {
    let mut characters = next.chars();
    let is_path = characters.next() == Some('/')
        && !matches!(characters.next(), Some('/' | '\\'))
        && !next.chars().any(|c| c == '\\' || !c.is_ascii() || c.is_ascii_control());
    if is_path { next } else { "/" }
}

fn nibble(digit: u8) -> Option<u8> {
    u8::try_from(char::from(digit).to_digit(16)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirect_target_is_a_path_of_the_same_host() {
        for path in ["/", "/a?b=c&d=%2F", "/a//b", "/?next=//x"] {
            assert_eq!(local_path(path), path);
        }
        for other in ["", "a", "//x", "/\\x", "/a\\b", "https://x", "/a\r\nb", "/\u{e9}", "\\/x", " /"] {
            assert_eq!(local_path(other), "/", "{other}");
        }
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (raw, path) in [
            ("/", "/"),
            ("/a/b.css", "/a/b.css"),
            ("/a%20b", "/a b"),
            ("/%C3%BC", "/ü"),
            ("/%2561", "/%61"),
            ("/..a/b..", "/..a/b.."),
            ("/docs/", "/docs/"),
        ] {
            assert_eq!(decode(raw).as_deref(), Some(path), "{raw}");
        }
    }

    #[test]
    fn unsafe_paths_are_rejected() {
        for raw in [
            "",
            "*",
            "a",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/%ff",
            "/%00",
            "/a\\b",
            "/%5c",
            "/..",
            "/../x",
            "/a/%2e%2e/x",
            "/%2E/x",
            "/.",
            "/a%2fb",
            "/%2F%2Fhost",
            "//host",
            "/a//b",
            "/a/..",
        ] {
            assert_eq!(decode(raw), None, "{raw}");
        }
    }
}
