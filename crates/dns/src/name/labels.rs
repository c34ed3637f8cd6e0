//! Conversion of names between text and wire format (RFC 1035 sections 3.1 and 5.1).
//!
//! Names are compared and sorted in wire format. Text is only for people and files. ASCII letters are always lowercase,
//! so equal names have equal bytes.

use std::borrow::Cow;

use kernel::domain;

/// The root in wire format.
pub(crate) const ROOT: &[u8] = &[0];
/// The maximum length of a label.
const MAX_LABEL_LENGTH: usize = 63;
/// The maximum length of a name in wire format.
pub(crate) const MAX_NAME_LENGTH: usize = 255;
/// The maximum length of a name as text, in which each octet may take four characters: `\DDD`.
const MAX_TEXT_LENGTH: usize = 4 * MAX_NAME_LENGTH;

/// A syntax error in a name. The message completes "the name …".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("is empty or has an empty label")]
    EmptyLabel,
    #[error("has a label of more than 63 octets")]
    LongLabel,
    #[error("has more than 255 octets")]
    Long,
    #[error("has a \\ that is not followed by a character or by three digits up to 255")]
    Escape,
    #[error("has a character that must be written as \\DDD")]
    Character,
    #[error("has characters that are not allowed in internationalised names (UTS 46)")]
    Idna,
    #[error("has both non-ASCII characters and escapes; write it in punycode")]
    Mixed,
}

/// Parses a name into wire format. `origin`, an absolute name in wire format, completes a relative name.
pub(crate) fn parse(text: &str, origin: &[u8]) -> Result<Vec<u8>, NameError> {
    match text {
        "@" => return Ok(origin.to_vec()),
        "." => return Ok(ROOT.to_vec()),
        _ => {}
    }
    let (mut wire, is_absolute) = parse_labels(text)?;
    wire.extend_from_slice(if is_absolute { ROOT } else { origin });
    check_length(wire)
}

/// Checks the length of a name in wire format.
pub(crate) fn check_length(wire: Vec<u8>) -> Result<Vec<u8>, NameError> {
    if wire.len() > MAX_NAME_LENGTH { Err(NameError::Long) } else { Ok(wire) }
}

/// Parses labels. Returns their wire format without the root, and whether a final dot makes the name absolute.
pub(crate) fn parse_labels(text: &str) -> Result<(Vec<u8>, bool), NameError> {
    if text.len() > MAX_TEXT_LENGTH {
        return Err(NameError::Long);
    }
    let text = if text.is_ascii() { Cow::Borrowed(text) } else { Cow::Owned(punycode(text)?) };
    let (mut wire, mut label, mut is_absolute) = (Vec::with_capacity(text.len() + 1), Vec::new(), false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let octet = match byte {
            b'.' => {
                push_label(&mut wire, &label)?;
                label.clear();
                is_absolute = bytes.len() == 0;
                continue;
            }
            b'\\' => unescape(&mut bytes).ok_or(NameError::Escape)?,
            b'"' | b'(' | b')' | b';' => return Err(NameError::Character),
            _ if byte.is_ascii_graphic() => byte,
            _ => return Err(NameError::Character),
        };
        label.push(octet.to_ascii_lowercase());
    }
    if !is_absolute {
        push_label(&mut wire, &label)?;
    }
    Ok((wire, is_absolute))
}

/// Reads an escape after its backslash: `\DDD`, or a character that stands for itself.
pub(crate) fn unescape(bytes: &mut impl Iterator<Item = u8>) -> Option<u8> {
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

/// Returns the labels of a name in wire format, from the left, without the root. Stops at invalid bytes.
pub(crate) fn labels(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    suffixes(wire).filter_map(|rest| rest.get(1..=usize::from(*rest.first()?)))
}

/// Returns a name in wire format and all its suffixes, down to its last label.
pub(crate) fn suffixes(wire: &[u8]) -> impl Iterator<Item = &[u8]> {
    let some = |rest: &&[u8]| rest.first().is_some_and(|length| *length != 0);
    let begin = Some(wire).filter(some);
    std::iter::successors(begin, move |rest| rest.get(usize::from(*rest.first()?) + 1..).filter(some))
}

/// Returns the length of the uncompressed name at the start of these bytes. Returns `None` if they do not begin with a
/// name.
pub(crate) fn wire_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    loop {
        let label = usize::from(*bytes.get(length)?);
        length += 1 + label;
        if label > MAX_LABEL_LENGTH || length > MAX_NAME_LENGTH {
            return None;
        }
        if label == 0 {
            return Some(length);
        }
    }
}

/// Returns the absolute name as text, with the final dot.
pub(crate) fn text(wire: &[u8]) -> String {
    let mut text = String::with_capacity(wire.len());
    for label in labels(wire) {
        write_label(&mut text, label);
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

/// Appends a label. Escapes all characters for which Knot requires an escape, which are more than RFC 1035 requires.
pub(crate) fn write_label(text: &mut String, label: &[u8]) {
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

/// Returns whether the text is an IP address, which the user did not mean as a name.
pub(crate) fn is_address(text: &str) -> bool {
    text.strip_suffix('.').unwrap_or(text).parse::<std::net::IpAddr>().is_ok()
}

fn push_label(wire: &mut Vec<u8>, label: &[u8]) -> Result<(), NameError> {
    match u8::try_from(label.len()) {
        Ok(0) => return Err(NameError::EmptyLabel),
        Ok(length) if label.len() <= MAX_LABEL_LENGTH => wire.push(length),
        _ => return Err(NameError::LongLabel),
    }
    wire.extend_from_slice(label);
    Ok(())
}

fn punycode(text: &str) -> Result<String, NameError> {
    if text.contains('\\') {
        return Err(NameError::Mixed);
    }
    domain::punycode(text).ok_or(NameError::Idna)
}
