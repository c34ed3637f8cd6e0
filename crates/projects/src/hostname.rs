//! Validates the hostnames that a project may claim.

use kernel::domain::{self, Characters, InvalidDomain};
use kernel::ownership::VerifyRecord;

/// A custom hostname in its stored form: lowercase punycode, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// The reason why a project cannot use a hostname.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostName {
    #[error(transparent)]
    Domain(InvalidDomain),
    #[error("must not contain a wildcard; add each name separately")]
    Wildcard,
    #[error("must be a hostname without scheme, port and path")]
    Address,
    #[error(
        "must have at most {} characters, so that a TXT record can prove its ownership",
        VerifyRecord::MAX_OWNED_NAME
    )]
    Long,
    #[error("must not be under the platform's domain {0}")]
    Platform(String),
}

impl HostName {
    /// Parses and normalizes a hostname. Rejects names under the platform's `own_domains`.
    ///
    /// # Errors
    /// Returns [`InvalidHostName`] if the text is not a hostname, or is not one that a project may use.
    pub fn parse(text: &str, own_domains: &[String]) -> Result<Self, InvalidHostName> {
        let name = domain::parse(text, Characters::Host).map_err(|invalid| match invalid {
            InvalidDomain::Wildcard => InvalidHostName::Wildcard,
            InvalidDomain::Shape if text.contains(['/', ':', '@', '?', '#']) => InvalidHostName::Address,
            invalid => InvalidHostName::Domain(invalid),
        })?;
        if name.len() > VerifyRecord::MAX_OWNED_NAME {
            return Err(InvalidHostName::Long);
        }
        match own_domains.iter().find(|domain| domain::is_within(&name, domain)) {
            Some(domain) => Err(InvalidHostName::Platform(domain.clone())),
            None => Ok(Self(name)),
        }
    }

    /// Returns the hostname as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Normalizes any hostname, including names under the platform's domains.
pub(crate) fn normalize(text: &str) -> Option<String> {
    domain::normalize(text, Characters::Host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidHostName> {
        let own = ["svc.example".to_owned(), "localhost".to_owned()];
        HostName::parse(text, &own).map(|name| name.0)
    }

    #[test]
    fn all_spellings_normalize_to_one_name() {
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
    fn invalid_and_platform_names_are_rejected() {
        use InvalidHostName::{Address, Domain, Long, Platform, Wildcard};
        use kernel::domain::InvalidDomain::{Ip, PublicSuffix, Shape, SingleLabel};
        for (text, error) in [
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
            assert_eq!(parse(text), Err(error), "{text}");
        }
        assert_eq!(parse(&format!("{}.example.org", "a".repeat(64))), Err(Domain(Shape)));
        assert_eq!(parse(&format!("{}example.org", "a.".repeat(130))), Err(Domain(Shape)));
        let long = |last: usize| format!("{0}.{0}.{0}.{1}.example.org", "a".repeat(63), "b".repeat(last));
        assert!(parse(&long(37)).is_ok_and(|name| name.len() == 241));
        assert_eq!(parse(&long(38)), Err(Long));
    }
}
