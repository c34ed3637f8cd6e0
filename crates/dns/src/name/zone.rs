//! Names of zones.

use kernel::domain::{self, Characters, InvalidDomain};

use super::labels;
use super::wire::WireName;

/// A zone's name: absolute, lowercase punycode (UTS 46), without the final dot; `example.org`.
///
/// At least two labels, no public suffix, no IP address, no wildcard (contract section 6). Reverse zones are zones, also
/// those of a part of a network (RFC 2317).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneName(String);

impl ZoneName {
    /// Reads a name in any spelling: Unicode or punycode, any case, with or without the final dot.
    ///
    /// # Errors
    /// When a zone cannot be called so.
    pub fn parse(text: &str) -> Result<Self, InvalidDomain> {
        domain::parse(text, Characters::Underscore).map(Self)
    }

    /// A name that was parsed before, such as that of a row.
    #[must_use]
    pub fn stored(name: String) -> Self {
        Self(name)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in wire format.
    #[must_use]
    pub fn wire(&self) -> WireName {
        WireName::stored(labels::read(&self.0, labels::ROOT).unwrap_or_else(|_| labels::ROOT.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<String, InvalidDomain> {
        ZoneName::parse(text).map(|name| name.0)
    }

    #[test]
    fn every_spelling_of_a_name_is_one_name() {
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
    fn what_no_zone_can_be_called_is_refused() {
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
