//! Names as labels: text to wire and back (RFC 1035 sections 3.1 and 5.1).
//!
//! A name on the wire is compared, ordered and measured; its text is only ever for people and files. ASCII letters are
//! small everywhere, so equal names are equal bytes.

use std::borrow::Cow;

use kernel::domain;

/// The root, on the wire.
pub(crate) const ROOT: &[u8] = &[0];
/// The most octets of a label, and of a name with its lengths.
const MOST_OF_LABEL: usize = 63;
pub(crate) const MOST: usize = 255;
/// The longest text that can be a name: every octet as `\DDD`.
const MOST_OF_TEXT: usize = 4 * MOST;

/// Why a text is no name; in words that complete "the name …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    #[error("has an empty label: two dots in a row, or nothing at all")]
    EmptyLabel,
    #[error("has a label of more than 63 octets")]
    LongLabel,
    #[error("has more than 255 octets")]
    Long,
    #[error("has a \\ without a character, or three digits up to 255, behind it")]
    Escape,
    #[error("has a character that must be written as \\DDD")]
    Character,
    #[error("has characters that no internationalised name may have (UTS 46)")]
    Idna,
    #[error("has characters beyond ASCII and escapes; write it in punycode")]
    Mixed,
}

/// Reads a name, relative ones completed with the origin. The origin is absolute and on the wire, as is the answer.
pub(crate) fn read(text: &str, origin: &[u8]) -> Result<Vec<u8>, NameFault> {
    match text {
        "@" => return Ok(origin.to_vec()),
        "." => return Ok(ROOT.to_vec()),
        _ => {}
    }
    let (mut wire, is_absolute) = prefix(text)?;
    wire.extend_from_slice(if is_absolute { ROOT } else { origin });
    measured(wire)
}

/// The name, unless it is too long.
pub(crate) fn measured(wire: Vec<u8>) -> Result<Vec<u8>, NameFault> {
    if wire.len() > MOST { Err(NameFault::Long) } else { Ok(wire) }
}

/// The labels that are written out, on the wire without the root, and whether a final dot makes them absolute.
pub(crate) fn prefix(text: &str) -> Result<(Vec<u8>, bool), NameFault> {
    if text.len() > MOST_OF_TEXT {
        return Err(NameFault::Long);
    }
    let text = if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(punycode(text)?) };
    let (mut wire, mut label, mut is_absolute) = (Vec::with_capacity(text.len() + 1), Vec::new(), false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let octet = match byte {
            b'.' => {
                push(&mut wire, &label)?;
                label.clear();
                is_absolute = bytes.len() == 0;
                continue;
            }
            b'\\' => escaped(&mut bytes).ok_or(NameFault::Escape)?,
            b'"' | b'(' | b')' | b';' => return Err(NameFault::Character),
            _ if byte.is_ascii_graphic() => byte,
            _ => return Err(NameFault::Character),
        };
        label.push(octet.to_ascii_lowercase());
    }
    if !is_absolute {
        push(&mut wire, &label)?;
    }
    Ok((wire, is_absolute))
}

/// What an escape stands for, the backslash being read: `\DDD`, or a character for itself.
pub(crate) fn escaped(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let first = bytes.next()?;
    if !first.is_ascii_digit() {
        return (!first.is_ascii_control()).then_some(first);
    }
    let mut value = u16::from(first - b'0');
    for _ in 0..2 {
        let digit = bytes.next().filter(u8::is_ascii_digit)?;
        value = value * 10 + u16::from(digit - b'0');
    }
    u8::try_from(value).ok()
}

/// The labels of a name on the wire, from the left, without the root. Ends early where it is no name.
pub(crate) fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    suffixes(wire).filter_map(|rest| rest.get(1..=usize::from(*rest.first()?)))
}

/// A name on the wire, then what is left of it without its first label, and so on, up to its last label.
pub(crate) fn suffixes(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let some = |rest: &&[u8]| rest.first().is_some_and(|length| *length != 0);
    let begin = Some(wire).filter(some);
    std::iter::successors(begin, move |rest| rest.get(usize::from(*rest.first()?) + 1..).filter(some))
}

/// How many octets the uncompressed name takes that these bytes begin with, unless they begin with none.
pub(crate) fn measure(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let label = usize::from(*bytes.get(length)?);
        length += 1 + label;
        if label > MOST_OF_LABEL || length > MOST {
            return None;
        }
        if label == 0 {
            return Some(length);
        }
    }
}

/// The absolute name with its final dot.
pub(crate) fn text(wire: &[u8]) -> String {
    let mut text = String::with_capacity(wire.len());
    for label in labels(wire) {
        write(&mut text, label);
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Appends a label. What Knot would not read as it stands is escaped, which is more than RFC 1035 asks for.
pub(crate) fn write(text: &mut String, label: &[u8]) {
    for &octet in label {
        if octet.is_ascii_alphanumeric() || b"-_*/".contains(&octet) {
            text.push(octet.into());
        } else if octet.is_ascii_graphic() {
            text.push('\\');
            text.push(octet.into());
        } else {
            text.push_str(&format!("\\{octet:03}"));
        }
    }
}

/// Whether the text is an IP address, and so certainly not meant as a name.
pub(crate) fn is_address(text: &str) -> bool {
    text.strip_suffix('.').unwrap_or(text).parse::<std::net::IpAddr>().is_ok()
}

fn push(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameFault> {
    match u8::try_from(label.len()) {
        Ok(0) => return Err(NameFault::EmptyLabel),
        Ok(length) if label.len() <= MOST_OF_LABEL => wire.push(length),
        _ => return Err(NameFault::LongLabel),
    }
    wire.extend_from_slice(label);
    Ok(())
}

fn punycode(text: &str) -> Result<String, NameFault> {
    if text.contains('\\') {
        return Err(NameFault::Mixed);
    }
    domain::punycode(text).ok_or(NameFault::Idna)
}
