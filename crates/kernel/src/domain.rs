//! The only normalizer of domain names (`docs/security.md`).

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// The characters that a name may contain in addition to letters, digits and hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Characters {
    /// None: a hostname (STD3).
    Host,
    /// The underscore: a DNS name that is not a hostname (RFC 8552).
    Underscore,
}

const NO_UNDERSCORE: AsciiDenyList = AsciiDenyList::STD3;
const UNDERSCORE: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");
const UNDERSCORE_AND_WILDCARD: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()+,/:;<=>?@[\\]^`{|}~");

/// The reason why a text is not a domain name that can be owned. The message completes "the name …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomain {
    #[error("must be a domain name such as www.example.org: letters, digits and hyphens between dots")]
    Shape,
    #[error("must not contain a wildcard")]
    Wildcard,
    #[error("must be a name, not an IP address")]
    Ip,
    #[error("must have at least two labels, such as example.org")]
    SingleLabel,
    #[error("is a public suffix, under which anyone can register names: {0}")]
    PublicSuffix(String),
}

/// Normalizes a name to lowercase punycode without the final dot (UTS 46, non-transitional, with the length limits of
/// DNS).
#[must_use]
pub fn normalize(text: &str, characters: Characters) -> Option<String> {
    let text = text.strip_suffix(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']).unwrap_or(text);
    let denied = match characters {
        Characters::Host => NO_UNDERSCORE,
        Characters::Underscore => UNDERSCORE,
    };
    let ascii = Uts46::new().to_ascii(text.as_bytes(), denied, Hyphens::CheckFirstLast, DnsLength::Verify);
    ascii.ok().map(|name| name.to_ascii_lowercase())
}

/// Converts a name in a zone to punycode (UTS 46, non-transitional). The name may be relative and contain a wildcard.
/// The caller checks the length of its labels.
#[must_use]
pub fn punycode(text: &str) -> Option<String> {
    let ascii = Uts46::new().to_ascii(text.as_bytes(), UNDERSCORE_AND_WILDCARD, Hyphens::Allow, DnsLength::Ignore);
    ascii.ok().map(Cow::into_owned)
}

/// Parses a name in any spelling and checks that it can be owned: it has at least two labels, is not a public suffix,
/// and cannot be mistaken for an IP address.
pub fn parse(text: &str, characters: Characters) -> Result<String, InvalidDomain> {
    if text.contains('*') {
        return Err(InvalidDomain::Wildcard);
    }
    if text.contains('[') || text.parse::<std::net::IpAddr>().is_ok() {
        return Err(InvalidDomain::Ip);
    }
    let name = normalize(text, characters).ok_or(InvalidDomain::Shape)?;
    let Some((_, last)) = name.rsplit_once('.') else { return Err(InvalidDomain::SingleLabel) };
    // "Ends in a number" in the URL standard: some resolvers would parse such a name as an address.
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err(InvalidDomain::Ip);
    }
    match psl::domain_str(&name) {
        // A domain with an underscore directly below a public suffix cannot be registered, so it cannot be delegated.
        Some(registrable) if registrable.contains('_') => Err(InvalidDomain::Shape),
        Some(_) => Ok(name),
        None => Err(InvalidDomain::PublicSuffix(name)),
    }
}

/// Returns the part of a normalized name that can be registered: one label under a public suffix. `None` for a public
/// suffix. An unknown top-level domain counts as a public suffix.
#[must_use]
pub fn registrable(name: &str) -> Option<&str> {
    psl::domain_str(name)
}

/// Returns whether a normalized name is the domain or below it.
#[must_use]
pub fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
