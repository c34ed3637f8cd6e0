//! The one normaliser of domain names (security rules, "Names and addresses").

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

/// Which characters a name may have beside letters, digits and hyphens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Characters {
    /// None: a host's name (STD3).
    Host,
    /// The underscore too: names in the DNS that are no hosts (RFC 8552).
    Underscore,
}

const NO_UNDERSCORE: AsciiDenyList = AsciiDenyList::STD3;
const UNDERSCORE: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~");
const UNDERSCORE_AND_WILDCARD: AsciiDenyList = AsciiDenyList::new(true, "!\"#$%&'()+,/:;<=>?@[\\]^`{|}~");

/// Why a text is no domain name that somebody may own; in words that complete "the name …".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDomain {
    #[error("must be a domain name such as www.example.org: letters, digits and hyphens between dots")]
    Shape,
    #[error("must not hold a wildcard")]
    Wildcard,
    #[error("must be a name, not an IP address")]
    Ip,
    #[error("must have at least two labels, such as example.org")]
    SingleLabel,
    #[error("is a public suffix, under which anybody may register: {0}")]
    PublicSuffix(String),
}

/// UTS 46, non-transitional, with DNS' lengths: lowercase punycode without the final dot.
#[must_use]
pub fn normalised(text: &str, characters: Characters) -> Option<String> {
    let text = text.strip_suffix(['.', '\u{3002}', '\u{ff0e}', '\u{ff61}']).unwrap_or(text);
    let denied = match characters {
        Characters::Host => NO_UNDERSCORE,
        Characters::Underscore => UNDERSCORE,
    };
    let ascii = Uts46::new().to_ascii(text.as_bytes(), denied, Hyphens::CheckFirstLast, DnsLength::Verify);
    ascii.ok().map(|name| name.to_ascii_lowercase())
}

/// The punycode of a name in a zone, which may be relative and contain a wildcard (UTS 46, non-transitional). Its labels are
/// measured by the caller.
#[must_use]
pub fn punycode(text: &str) -> Option<String> {
    let ascii = Uts46::new().to_ascii(text.as_bytes(), UNDERSCORE_AND_WILDCARD, Hyphens::Allow, DnsLength::Ignore);
    ascii.ok().map(Cow::into_owned)
}

/// A name, in any spelling, that somebody may own: at least two labels, no public suffix, nothing that is taken for an
/// address.
///
/// # Errors
/// When it is none.
pub fn parse(text: &str, characters: Characters) -> Result<String, InvalidDomain> {
    if text.contains('*') {
        return Err(InvalidDomain::Wildcard);
    }
    if text.contains('[') || text.parse::<std::net::IpAddr>().is_ok() {
        return Err(InvalidDomain::Ip);
    }
    let name = normalised(text, characters).ok_or(InvalidDomain::Shape)?;
    let Some((_, last)) = name.rsplit_once('.') else { return Err(InvalidDomain::SingleLabel) };
    // The URL standard's "ends in a number": what some resolver would take for an address.
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        return Err(InvalidDomain::Ip);
    }
    match psl::domain_str(&name) {
        // Nobody can register it, so nobody can delegate it either.
        Some(registrable) if registrable.contains('_') => Err(InvalidDomain::Shape),
        Some(_) => Ok(name),
        None => Err(InvalidDomain::PublicSuffix(name)),
    }
}

/// Whether a normalised name is the domain, or lies in it.
#[must_use]
pub fn is_within(name: &str, domain: &str) -> bool {
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}
