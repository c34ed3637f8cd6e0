//! The one normaliser of host names (security rules, "Names and addresses").

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// A custom host name as it is stored: lowercase punycode, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// Why a text is no host name that a project may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostName {
    #[error("must be a host name such as www.example.org: letters, digits and hyphens between dots")]
    Shape,
    #[error("must not hold a wildcard; add each name by itself")]
    Wildcard,
    #[error("must be a name without scheme, port and path")]
    Address,
    #[error("must be a name, not an IP address")]
    Ip,
    #[error("must have at least two labels, such as example.org")]
    SingleLabel,
    #[error("is a public suffix, under which anybody may register: {0}")]
    PublicSuffix(String),
    #[error("lies under a domain of this platform: {0}")]
    Platform(String),
}

impl HostName {
    /// Reads a name, in any spelling, that does not lie under one of the platform's own domains.
    ///
    /// # Errors
    /// When it is none, or none that a project may have.
    pub fn parse(text: &str, own: &[String]) -> Result<Self, InvalidHostName> {
        if text.contains('*') {
            return Err(InvalidHostName::Wildcard);
        }
        if text.contains('[') || text.parse::<std::net::IpAddr>().is_ok() {
            return Err(InvalidHostName::Ip);
        }
        if text.contains(['/', ':', '@', '?', '#']) {
            return Err(InvalidHostName::Address);
        }
        let name = normalised(text).ok_or(InvalidHostName::Shape)?;
        let Some((_, last)) = name.rsplit_once('.') else { return Err(InvalidHostName::SingleLabel) };
        // The URL standard's "ends in a number": what some resolver would take for an address.
        if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
            return Err(InvalidHostName::Ip);
        }
        if let Some(own) = own.iter().find(|own| is_under(&name, own)) {
            return Err(InvalidHostName::Platform(own.clone()));
        }
        match psl::suffix(name.as_bytes()) {
            Some(suffix) if suffix.as_bytes() == name.as_bytes() => Err(InvalidHostName::PublicSuffix(name)),
            _ => Ok(Self(name)),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// UTS 46, non-transitional, with STD3's characters and DNS' lengths.
pub(crate) fn normalised(text: &str) -> Option<String> {
    let text = text.strip_suffix(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']).unwrap_or(text);
    let ascii = Uts46::new().to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify);
    ascii.ok().map(|name| name.to_ascii_lowercase())
}

fn is_under(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
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
        use InvalidHostName::{Address, Ip, Platform, PublicSuffix, Shape, SingleLabel, Wildcard};
        for (text, why) in [
            ("", Shape),
            (".", Shape),
            ("example..org", Shape),
            (".example.org", Shape),
            ("-a.example.org", Shape),
            ("a-.example.org", Shape),
            ("a_b.example.org", Shape),
            ("a b.example.org", Shape),
            ("a\u{0}b.example.org", Shape),
            ("a%2eexample.org", Shape),
            ("xn--a.example.org", Shape),
            ("*.example.org", Wildcard),
            ("https://example.org", Address),
            ("example.org:443", Address),
            ("example.org/x", Address),
            ("a@example.org", Address),
            ("127.0.0.1", Ip),
            ("::1", Ip),
            ("[::1]", Ip),
            ("1.2.3", Ip),
            ("0x7f.1", Ip),
            ("1.2.3.0x4", Ip),
            ("localhost", SingleLabel),
            ("example", SingleLabel),
            ("co.uk", PublicSuffix("co.uk".into())),
            ("github.io", PublicSuffix("github.io".into())),
            ("site-ada.localhost", Platform("localhost".into())),
            ("svc.example", Platform("svc.example".into())),
            ("x.SVC.example.", Platform("svc.example".into())),
            ("ｓvc.example", Platform("svc.example".into())),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
        assert_eq!(parse(&format!("{}.example.org", "a".repeat(64))), Err(Shape));
        assert_eq!(parse(&format!("{}example.org", "a.".repeat(130))), Err(Shape));
    }
}
