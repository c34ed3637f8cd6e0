//! Names of domains.

use kernel::domain::{self, Characters, InvalidDomain};

/// The name of a domain: one label under a public suffix, in lowercase punycode without the final dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

/// The reason why a text is not the name of a domain. The message follows "the name" in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomainName {
    #[error(transparent)]
    Domain(#[from] InvalidDomain),
    #[error("must be one label under a public suffix, such as {0}")]
    Subdomain(String),
}

impl DomainName {
    /// Parses a name in Unicode or punycode, in any case, with or without the final dot.
    ///
    /// # Errors
    /// Returns an error for a name that cannot be registered.
    pub fn parse(text: &str) -> Result<Self, InvalidDomainName> {
        let name = domain::parse(text, Characters::Host)?;
        match domain::registrable(&name) {
            Some(registrable) if registrable != name => Err(InvalidDomainName::Subdomain(registrable.to_owned())),
            _ => Ok(Self(name)),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for DomainName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, String> {
        DomainName::parse(text).map(|name| name.0).map_err(|error| error.to_string())
    }

    #[test]
    fn names_are_one_label_under_a_public_suffix() {
        for (text, name) in [
            ("example.org", "example.org"),
            ("Example.ORG.", "example.org"),
            ("example.co.uk", "example.co.uk"),
            ("münchen.example", "xn--mnchen-3ya.example"),
            ("MU\u{308}NCHEN.example", "xn--mnchen-3ya.example"),
            ("straße.de", "xn--strae-oqa.de"),
            ("3com.com", "3com.com"),
            ("a-b.com", "a-b.com"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name), "{text}");
        }
        for text in [
            "",
            "org",
            "co.uk",
            "www.example.org",
            "a.b.example.org",
            "*.example.org",
            "-a.org",
            "a_b.org",
            "a b.org",
            "192.0.2.1",
            "https://example.org",
            "example..org",
            "xn--a.org",
            "github.io",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("www.example.org").unwrap_err().contains("example.org"));
        assert!(parse(&format!("{}.org", "a".repeat(63))).is_ok());
        assert!(parse(&format!("{}.org", "a".repeat(64))).is_err());
    }
}
