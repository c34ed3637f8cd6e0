//! Names of zones.

use kernel::domain::{self, Characters, InvalidDomain};

use super::labels;
use super::wire::WireName;

/// The name of a zone, such as `example.org`: absolute, lowercase punycode (UTS 46), without the final dot.
///
/// It has at least two labels and is not a public suffix, an IP address or a wildcard (contract section 6). Reverse
/// zones are allowed, including classless ones (RFC 2317).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneName(String);

impl ZoneName {
    /// Parses a name in Unicode or punycode, in any case, with or without the final dot.
    ///
    /// # Errors
    /// Returns an error for a name that a zone cannot have.
    pub fn parse(text: &str) -> Result<Self, InvalidDomain> {
        domain::parse(text, Characters::Underscore).map(Self)
    }

    /// Wraps a validated name, such as one from Postgres.
    #[must_use]
    pub fn new_unchecked(name: String) -> Self {
        Self(name)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name is that of the other zone or below it.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        domain::is_within(&self.0, &other.0)
    }

    /// Returns the name in wire format.
    #[must_use]
    pub fn wire(&self) -> WireName {
        WireName::new_unchecked(labels::parse(&self.0, labels::ROOT).unwrap_or_else(|_| labels::ROOT.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidDomain> {
        ZoneName::parse(text).map(|name| name.0)
    }

    #[test]
    fn zone_names_are_normalized() {
        for (text, name) in [
            ("example.org", "example.org"),
            ("Example.ORG.", "example.org"),
            ("a.b.example.org", "a.b.example.org"),
            ("münchen.example", "xn--mnchen-3ya.example"),
            ("MU\u{308}NCHEN.example", "xn--mnchen-3ya.example"),
            ("straße.example", "xn--strae-oqa.example"),
            ("example\u{3002}org\u{ff0e}", "example.org"),
            ("example.co.uk", "example.co.uk"),
            ("2.0.192.in-addr.arpa", "2.0.192.in-addr.arpa"),
            ("0-25.2.0.192.in-addr.arpa", "0-25.2.0.192.in-addr.arpa"),
            ("8.b.d.0.1.0.0.2.ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa"),
            ("_acme-challenge.example.org", "_acme-challenge.example.org"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn invalid_zone_names_are_rejected() {
        use InvalidDomain::{Ip, PublicSuffix, Shape, SingleLabel, Wildcard};
        for (text, why) in [
            ("", Shape),
            (".", Shape),
            ("example..org", Shape),
            (".example.org", Shape),
            ("-a.example.org", Shape),
            ("a b.example.org", Shape),
            ("a\u{0}.example.org", Shape),
            ("a\\.b.example.org", Shape),
            ("0/25.2.0.192.in-addr.arpa", Shape),
            ("ex_ample.org", Shape),
            ("xn--a.example.org", Shape),
            ("https://example.org", Shape),
            ("example.org:53", Shape),
            ("@", Shape),
            ("*.example.org", Wildcard),
            ("192.0.2.1", Ip),
            ("192.0.2.1.", Ip),
            ("2001:db8::1", Ip),
            ("1.2.3", Ip),
            ("1.2.3.0x4", Ip),
            ("org", SingleLabel),
            ("localhost", SingleLabel),
            ("co.uk", PublicSuffix("co.uk".into())),
            ("in-addr.arpa", PublicSuffix("in-addr.arpa".into())),
            ("github.io", PublicSuffix("github.io".into())),
        ] {
            assert_eq!(parse(text), Err(why), "{text}");
        }
        let longest = format!("{}.example.org", vec!["a".repeat(59); 4].join("."));
        assert_eq!((longest.len(), parse(&format!("{longest}."))), (251, Ok(longest.clone())));
        assert!(parse(&format!("a.{longest}")).is_ok_and(|name| name.len() == 253));
        assert_eq!(parse(&format!("abc.{longest}")), Err(Shape));
        assert_eq!(parse(&format!("{}.example.org", "a".repeat(64))), Err(Shape));
    }
}
