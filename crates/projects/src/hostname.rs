//! The names that a project may claim.

use kernel::domain::{self, Characters, InvalidDomain};

/// A custom host name as it is stored: lowercase punycode, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text is no host name that a project may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostName {
    #[error(transparent)]
    Domain(InvalidDomain),
    #[error("must not hold a wildcard; add each name by itself")]
    Wildcard,
    #[error("must be a name without scheme, port and path")]
    Address,
    #[error("lies under a domain of this platform: {0}")]
    Platform(String),
}

impl HostName {
    /// Reads a name, in any spelling, that does not lie under one of the platform's own domains.
    ///
    /// # Errors
    /// When it is none, or none that a project may have.
    pub fn parse(text: &str, own: &[String]) -> Result<Self, InvalidHostName> {
        let name = domain::parse(text, Characters::Host).map_err(|invalid| match invalid {
            InvalidDomain::Wildcard => InvalidHostName::Wildcard,
            InvalidDomain::Shape if text.contains(['/', ':', '@', '?', '#']) => InvalidHostName::Address,
            invalid => InvalidHostName::Domain(invalid),
        })?;
        match own.iter().find(|own| domain::is_within(&name, own)) {
            Some(own) => Err(InvalidHostName::Platform(own.clone())),
            None => Ok(Self(name)),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host name in its one spelling, whoever's it is.
pub(crate) fn normalised(text: &str) -> Option<String> {
    domain::normalised(text, Characters::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidHostName> {
        let own = ["svc.example".to_owned(), "localhost".to_owned()];
        HostName::parse(text, &own).map(|name| name.0)
    }

    #[test]
    fn every_spelling_of_a_name_is_one_name() {
        for (text, name) in [
            ("www.example.org", "www.example.org"),
            ("WWW.Example.ORG.", "www.example.org"),
            ("example.org", "example.org"),
            ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
            ("münchen.example", "xn--mnchen-3ya.example"),
            ("MÜNCHEN.example", "xn--mnchen-3ya.example"),
            ("mu\u{308}nchen.example", "xn--mnchen-3ya.example"),
            ("straße.example", "xn--strae-oqa.example"),
            ("www\u{3002}example\u{ff0e}org", "www.example.org"),
            ("ｗｗｗ.example.org", "www.example.org"),
            ("a.co.uk", "a.co.uk"),
            ("a.b.c.d.e.example.org", "a.b.c.d.e.example.org"),
            ("notsvc.example.org", "notsvc.example.org"),
            ("mysvc.example", "mysvc.example"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn what_no_project_may_have_is_refused() {
        use InvalidHostName::{Address, Domain, Platform, Wildcard};
        use kernel::domain::InvalidDomain::{Ip, PublicSuffix, Shape, SingleLabel};
        for (text, why) in [
            ("", Domain(Shape)),
            (".", Domain(Shape)),
            ("example..org", Domain(Shape)),
            (".example.org", Domain(Shape)),
            ("-a.example.org", Domain(Shape)),
            ("a-.example.org", Domain(Shape)),
            ("a_b.example.org", Domain(Shape)),
            ("a b.example.org", Domain(Shape)),
            ("a\u{0}b.example.org", Domain(Shape)),
            ("a%2eexample.org", Domain(Shape)),
            ("xn--a.example.org", Domain(Shape)),
            ("*.example.org", Wildcard),
            ("https://example.org", Address),
            ("example.org:443", Address),
            ("example.org/x", Address),
            ("a@example.org", Address),
            ("127.0.0.1", Domain(Ip)),
            ("::1", Domain(Ip)),
            ("[::1]", Domain(Ip)),
            ("1.2.3", Domain(Ip)),
            ("0x7f.1", Domain(Ip)),
            ("1.2.3.0x4", Domain(Ip)),
            ("localhost", Domain(SingleLabel)),
            ("example", Domain(SingleLabel)),
            ("co.uk", Domain(PublicSuffix("co.uk".into()))),
            ("github.io", Domain(PublicSuffix("github.io".into()))),
            ("site-ada.localhost", Platform("localhost".into())),
            ("svc.example", Platform("svc.example".into())),
            ("x.SVC.example.", Platform("svc.example".into())),
            ("ｓvc.example", Platform("svc.example".into())),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
        assert_eq!(parse(&format!("{}.example.org", "a".repeat(64))), Err(Domain(Shape)));
        assert_eq!(parse(&format!("{}example.org", "a.".repeat(130))), Err(Domain(Shape)));
    }
}
