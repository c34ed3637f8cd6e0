//! Absolute names in wire format.

use super::labels;

/// An absolute name in wire format (RFC 1035 section 3.1): uncompressed, lowercase, with the root's empty label.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WireName(Vec<u8>);

impl WireName {
    /// Parses the name of a host or zone: labels of letters, digits, `-` and `_`, with or without the final dot.
    /// Returns `None` for other characters, escapes and the root.
    #[must_use]
    pub fn from_host(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let wire = if text.bytes().all(plain) { labels::parse(text, labels::ROOT).ok()? } else { return None };
        (wire != labels::ROOT).then_some(Self(wire))
    }

    /// Wraps a validated name, such as one from a record.
    pub(crate) fn new_unchecked(wire: Vec<u8>) -> Self {
        Self(wire)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes without copying them.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Returns the name as text, lowercase without the final dot. Returns `None` for names that [`Self::from_host`]
    /// rejects.
    #[must_use]
    pub fn to_host(&self) -> Option<String> {
        let mut text = String::with_capacity(self.0.len());
        for label in labels::labels(&self.0) {
            let label = std::str::from_utf8(label).ok()?;
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(label);
        }
        // This also rejects characters that need escapes.
        (Self::from_host(&text).as_ref() == Some(self)).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_convert_to_wire_and_back() {
        let name = WireName::from_host("Www.Example.ORG.").unwrap();
        assert_eq!(name.as_bytes(), b"\x03www\x07example\x03org\0");
        assert_eq!(name.to_host().unwrap(), "www.example.org");
        let suffixes: Vec<&[u8]> = labels::suffixes(name.as_bytes()).collect();
        assert_eq!(suffixes, [&b"\x03www\x07example\x03org\0"[..], b"\x07example\x03org\0", b"\x03org\0"]);
    }

    #[test]
    fn invalid_host_names_are_rejected() {
        let long = "a".repeat(64);
        let deep = vec!["a".repeat(60); 5].join(".");
        for text in ["", ".", "a..b", "a..", ".a", "a b", "a\\046b", "é.org", &long, &deep] {
            assert_eq!(WireName::from_host(text), None, "{text}");
        }
        for wire in [&b"\0"[..], b"\x03a.b\0", b"\x02a", b"", b"\xc0\x0c", b"\x01\xff\0"] {
            assert_eq!(WireName::new_unchecked(wire.to_vec()).to_host(), None, "{wire:?}");
        }
    }
}
