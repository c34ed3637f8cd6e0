//! Host names.

use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};

/// The maximum lengths of a name and of a label in characters (RFC 1035 section 2.3.4, without the root's label).
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// A host name in its ASCII form (UTS 46, non-transitional), in lower case and without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// Parses a host name in any spelling. Returns `None` if the length is invalid, or if there are other characters
    /// than letters, digits and hyphens.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let ascii = if text.is_ascii() {
            // DNS accepts labels that UTS 46 rejects, such as `xn--a` and `r3---sn-x`, and so do names of projects.
            text.to_ascii_lowercase()
        } else {
            let uts46 = Uts46::new();
            uts46.to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::Allow, DnsLength::Ignore).ok()?.into_owned()
        };
        let is_label = |label: &str| {
            (1..=MAX_LABEL).contains(&label.len()) && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        (ascii.len() <= MAX_NAME && ascii.split('.').all(is_label)).then_some(Self(ascii))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name has at least two labels, so that it can be a domain in the public DNS.
    pub fn is_qualified(&self) -> bool {
        self.0.contains('.')
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_name_are_equal() {
        for text in ["blog.acme.example", "BLOG.Acme.Example.", "blog.acme。example"] {
            assert_eq!(HostName::parse(text).unwrap().as_str(), "blog.acme.example");
        }
        assert_eq!(HostName::parse("bücher.example").unwrap().as_str(), "xn--bcher-kva.example");
        assert_eq!(HostName::parse("XN--BCHER-KVA.example").unwrap().as_str(), "xn--bcher-kva.example");
        assert_eq!(HostName::parse("XN--a.Acme.example").unwrap().as_str(), "xn--a.acme.example");
    }

    #[test]
    fn malformed_names_are_rejected() {
        let long_label = "a".repeat(64);
        let long_name = ["a.".repeat(127), "a".to_owned()].concat();
        for text in [
            "",
            ".",
            "..",
            "a..b",
            "a b",
            "a_b.example",
            "[192.0.2.1]",
            "xn--a.bücher",
            "a\0b",
            &long_label,
            &long_name,
        ] {
            assert_eq!(HostName::parse(text), None, "{text:?}");
        }
    }
}
