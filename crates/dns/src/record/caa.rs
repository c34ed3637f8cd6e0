//! Certification authority authorization (RFC 8659).
//!
//! A certification authority that does not understand a value must not issue certificates, so a mistake would block
//! them all. Nameservers do not check values; this module does.

use super::{InvalidRecord, reject};

pub(super) fn check(flags: &[u8], tag: &[u8], value: &[u8]) -> Result<(), InvalidRecord> {
    // RFC 8659 section 4.1: all bits except "critical" are reserved and zero.
    if !matches!(flags, [0 | 128]) {
        return reject("has flags that are neither 0 nor 128");
    }
    let tag = tag.get(1..).unwrap_or_default().to_ascii_lowercase();
    if tag.is_empty() || !tag.iter().all(u8::is_ascii_alphanumeric) {
        return reject("has a tag with other characters than letters and digits");
    }
    match tag.as_slice() {
        b"issue" | b"issuewild" | b"issuemail" if !is_issuer(value) => {
            reject("has a value that is not a domain with optional parameters, such as ca.example; account=1")
        }
        b"iodef" if ![&b"mailto:"[..], b"http://", b"https://"].iter().any(|scheme| value.starts_with(scheme)) => {
            reject("has a value that does not begin with mailto:, http:// or https://")
        }
        _ => Ok(()),
    }
}

/// Returns whether the value has the form of RFC 8659 section 4.2: `[domain] [";" [tag "=" value *(";" tag "="
/// value)]]`.
fn is_issuer(value: &[u8]) -> bool {
    let mut pieces = value.split(|octet| *octet == b';').map(trim);
    let domain = pieces.next().unwrap_or_default();
    if !domain.is_empty() && !domain.split(|octet| *octet == b'.').all(is_label) {
        return false;
    }
    let parameters: Vec<_> = pieces.collect();
    parameters == [b""] || parameters.into_iter().all(is_parameter)
}

fn is_parameter(text: &[u8]) -> bool {
    let mut halves = text.splitn(2, |octet| *octet == b'=').map(trim);
    let (tag, value) = (halves.next().unwrap_or_default(), halves.next());
    is_label(tag) && value.is_some_and(|value| value.iter().all(u8::is_ascii_graphic))
}

fn is_label(text: &[u8]) -> bool {
    let ends = [text.first(), text.last()];
    ends.iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric))
        && text.iter().all(|octet| octet.is_ascii_alphanumeric() || *octet == b'-')
}

fn trim(text: &[u8]) -> &[u8] {
    let is_blank = |octet: &u8| matches!(octet, b' ' | b'\t');
    let start = text.iter().position(|octet| !is_blank(octet)).unwrap_or(text.len());
    let end = text.iter().rposition(|octet| !is_blank(octet)).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}
