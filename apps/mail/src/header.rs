//! Parses and cleans the header of a received mail.

use std::borrow::Cow;

use mail_parser::MessageParser;

use crate::host::HostName;

/// The maximum length of a subject in characters.
const MAX_SUBJECT: usize = 1000;

/// A header, without the `Authentication-Results` fields in which a sender pretended to be this host, and without
/// `Return-Path` fields.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    /// The remaining bytes of the header.
    pub bytes: Vec<u8>,
    /// Whether the mail does not start with a header field. In this case, an empty line must follow the node's own
    /// fields. Otherwise, the first line of the mail could be read as a continuation of the last of these fields.
    pub is_body: bool,
    /// The decoded subject, without control characters.
    pub subject: Option<String>,
    /// The number of header fields.
    pub fields: usize,
    /// The number of `Received` fields.
    pub hops: usize,
}

impl Header {
    /// Parses the header: the bytes before the first empty line, which consist of whole lines. Removes the
    /// `Authentication-Results` fields that name this host, as RFC 8601 section 5 requires. Also removes the
    /// `Return-Path` fields, because the node adds its own (RFC 5321 section 4.4).
    pub fn read(bytes: &[u8], host: &HostName) -> Self {
        let fields = Fields { rest: bytes };
        let starts_with_field = bytes.is_empty() || fields.clone().next().is_some_and(is_field);
        if !starts_with_field {
            return Self { bytes: bytes.to_vec(), is_body: true, subject: None, fields: 0, hops: 0 };
        }
        let mut header = Self { bytes: Vec::new(), is_body: false, subject: None, fields: 0, hops: 0 };
        for field in fields {
            header.fields += 1;
            let (name, value) = split(field).unwrap_or_default();
            let is_result = name.eq_ignore_ascii_case(b"Authentication-Results");
            if is_result && claims(value, host) || name.eq_ignore_ascii_case(b"Return-Path") {
                continue;
            }
            header.hops += usize::from(name.eq_ignore_ascii_case(b"Received"));
            if name.eq_ignore_ascii_case(b"Subject") && header.subject.is_none() {
                header.subject = Some(subject(value));
            }
            header.bytes.extend(field);
        }
        header
    }
}

/// The fields of a header, each with its continuation lines.
#[derive(Clone)]
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut end = 0;
        loop {
            let line = self.rest.get(end..).unwrap_or_default();
            end += line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |position| position + 1);
            if !matches!(self.rest.get(end), Some(b' ' | b'\t')) {
                break;
            }
        }
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!field.is_empty()).then_some(field)
    }
}

/// Returns whether the bytes are a valid field. White space before the colon is obsolete but valid (RFC 5322 section
/// 4.5).
fn is_field(field: &[u8]) -> bool {
    let name = field.iter().position(|byte| *byte == b':').and_then(|colon| field.get(..colon));
    name.map(<[u8]>::trim_ascii_end).is_some_and(|name| !name.is_empty() && name.iter().all(u8::is_ascii_graphic))
}

/// Returns the name and the value of a field. Removes all other bytes than printable ASCII from both ends of the name:
/// other parsers ignore control characters or Unicode white space there.
fn split(field: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let (name, value) = (field.get(..colon)?, field.get(colon + 1..)?);
    let start = name.iter().position(u8::is_ascii_graphic)?;
    let end = name.iter().rposition(u8::is_ascii_graphic)?;
    Some((name.get(start..=end)?, value))
}

/// Returns whether an `Authentication-Results` field claims to be from this host. Also returns true for an ambiguous
/// identifier, because another parser could read this host's name in it. Some parsers join repeated fields with commas.
/// Therefore the text after a comma must not look like a field of this host either.
fn claims(value: &[u8], host: &HostName) -> bool {
    let value = String::from_utf8_lossy(value);
    let is_host = |identifier: String| HostName::parse(&identifier).is_some_and(|name| name == *host);
    let part_claims = |part: &str| match identifier(part) {
        Some(identifier) => is_host(identifier),
        None => part.to_lowercase().contains(&host.to_string()),
    };
    identifier(&value).is_none_or(is_host) || value.split(',').skip(1).any(part_claims)
}

/// Returns the identifier of the authentication service: `[CFWS] value [CFWS version] [CFWS] ";"` (RFC 8601 section
/// 2.2).
fn identifier(value: &str) -> Option<String> {
    let text = without_comments(value)?;
    let text = text.trim();
    let (identifier, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => text.split_at(text.find([' ', '\t', '\r', '\n', ';']).unwrap_or(text.len())),
    };
    // A quoted pair or an encoded word can be another spelling of the same name. So can any character that is not
    // visible, because other parsers remove control characters and Unicode white space, or replace them with spaces.
    let is_visible = |c: char| c.is_ascii_graphic() || c.is_alphanumeric();
    let is_plain =
        !identifier.is_empty() && identifier.chars().all(is_visible) && !identifier.contains(['\\', '=', '"']);
    let version = rest.trim_start();
    let version_end = version.find(';').unwrap_or(version.len());
    let version_is_number = version.get(..version_end)?.trim().bytes().all(|byte| byte.is_ascii_digit());
    (is_plain && version_is_number).then(|| identifier.to_owned())
}

/// Replaces comments before the first `;` with a space. Returns `None` if they are not balanced.
fn without_comments(value: &str) -> Option<String> {
    let (mut text, mut depth, mut quoted, mut escaped) = (String::new(), 0_u32, false, false);
    for character in value.chars() {
        match character {
            _ if escaped => {
                escaped = false;
                if depth == 0 {
                    text.push(character);
                }
            }
            '\\' if depth > 0 => escaped = true,
            '\\' => {
                escaped = true;
                text.push(character);
            }
            '"' if depth == 0 => {
                quoted = !quoted;
                text.push(character);
            }
            '(' if !quoted => {
                depth += 1;
                text.push(' ');
            }
            ')' if !quoted => depth = depth.checked_sub(1)?,
            ';' if !quoted && depth == 0 => return Some(text),
            _ if depth == 0 => text.push(character),
            _ => {}
        }
    }
    (depth == 0 && !quoted).then_some(text)
}

/// Decodes a subject (RFC 2047). Replaces control characters with spaces.
fn subject(value: &[u8]) -> String {
    let field = [b"Subject:", value, b"\r\n"].concat();
    let parsed = MessageParser::new().parse_headers(&field);
    let decoded = parsed.as_ref().and_then(|message| message.subject()).map(Cow::Borrowed);
    let decoded = decoded.unwrap_or_else(|| String::from_utf8_lossy(value));
    let printable = decoded.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_SUBJECT);
    printable.collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Header {
        Header::read(text.as_bytes(), &HostName::parse("mx.example").unwrap())
    }

    #[test]
    fn results_under_our_name_are_removed() {
        for field in [
            "Authentication-Results: mx.example; spf=pass\r\n",
            "authentication-RESULTS: MX.Example; spf=pass\r\n",
            "Authentication-Results : mx.example; spf=pass\r\n",
            "Authentication-Results:mx.example.;spf=pass\r\n",
            "Authentication-Results: mx.example 1; spf=pass\r\n",
            "Authentication-Results: mx.example\r\n\t1;\r\n\tspf=pass\r\n",
            "Authentication-Results:\r\n mx.example; spf=pass\r\n",
            "Authentication-Results:\r\n \r\n mx.example; spf=pass\r\n",
            "Authentication-Results: (c) mx.example (d (e)) 1 (f); spf=pass\r\n",
            "Authentication-Results: (other.example; \\) ;)mx.example; spf=pass\r\n",
            "Authentication-Results: \"mx.example\"; spf=pass\r\n",
            "Authentication-Results: mx.example\r\n",
            "Authentication-Results: mx。example; spf=pass\r\n",
            // Other parsers ignore these characters at the ends of a name.
            "Authentication-Results\x0b: mx.example; spf=pass\r\n",
            "Authentication-Results\u{a0} : mx.example; spf=pass\r\n",
            "\x01\u{feff}Authentication-Results\u{2028}\x7f: mx.example; spf=pass\r\n",
            // Ambiguous identifiers.
            "Authentication-Results: \"mx\\.example\"; spf=pass\r\n",
            "Authentication-Results: =?utf-8?q?mx.example?=; spf=pass\r\n",
            "Authentication-Results: (other.example; mx.example; spf=pass\r\n",
            "Authentication-Results: other.example mx.example; spf=pass\r\n",
            "Authentication-Results: other.example) mx.example; spf=pass\r\n",
            "Authentication-Results: \"other.example; mx.example; spf=pass\r\n",
            "Authentication-Results: \r\n",
            "Authentication-Results: ; mx.example; spf=pass\r\n",
            "Authentication-Results: \x01mx.example; spf=pass\r\n",
            "Authentication-Results: mx.example\x01; spf=pass\r\n",
            "Authentication-Results: mx.example\x0b1; spf=pass\r\n",
            "Authentication-Results: \"\x1fmx.example \"; spf=pass\r\n",
            "Authentication-Results: \u{a0}mx.example\u{200b}; spf=pass\r\n",
            "Authentication-Results: \u{fffd}mx.example; spf=pass\r\n",
            "Authentication-Results: other.example; none, \x01mx.example; spf=pass\r\n",
        ] {
            let (before, after) = ("From: a@b.example\r\n", "To: c@d.example\r\n\tx\r\n");
            let header = read(&format!("{before}{field}{after}"));
            assert_eq!(String::from_utf8(header.bytes).unwrap(), format!("{before}{after}"), "{field:?}");
            assert_eq!(header.fields, 3);
        }
    }

    #[test]
    fn return_paths_are_removed() {
        let text = "Return-Path: <a@b.example>\r\nX: y\r\nRETURN-PATH :\r\n\t<>\r\nX-Return-Path: <>\r\n";
        assert_eq!(read(text).bytes, b"X: y\r\nX-Return-Path: <>\r\n");
    }

    #[test]
    fn other_fields_stay() {
        for field in [
            "Authentication-Results: other.example; spf=pass smtp.mailfrom=mx.example\r\n",
            "Authentication-Results: other.example 1; (mx.example) spf=pass\r\n",
            "Authentication-Results: sub.mx.example; spf=pass\r\n",
            "Authentication-Results: bücher.example; spf=pass\r\n",
            "X-Authentication-Results: mx.example; spf=pass\r\n",
            "Subject: Authentication-Results: mx.example; spf=pass\r\n",
            "X: 1\r\n Authentication-Results: mx.example; spf=pass\r\n",
            "a line without a colon\r\n",
        ] {
            let text = format!("From: a@b.example\r\n{field}");
            assert_eq!(String::from_utf8(read(&text).bytes).unwrap(), text);
        }
    }

    #[test]
    fn bytes_without_a_header_are_the_body() {
        for text in [" spf=pass\r\n", "\tspf=pass\r\nFrom: x\r\n", "spf pass: x\r\n", "text\r\n", ": x\r\n", "é: x\r\n"]
        {
            let header = read(text);
            assert!(header.is_body, "{text:?}");
            assert_eq!(header.bytes, text.as_bytes());
        }
        assert!(!read("").is_body);
        assert!(!read("X:\r\n").is_body);
    }

    #[test]
    fn fields_are_counted() {
        let header = read("Received: a\r\n\tb\r\nRECEIVED : c\r\nSubject: d\r\ngarbage\r\n");
        assert_eq!((header.fields, header.hops), (4, 2));
    }

    #[test]
    fn subjects_are_decoded() {
        for (value, subject) in [
            ("Hello", "Hello"),
            ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
            ("=?iso-8859-1?q?a?=\r\n =?utf-8?b?w7w=?=", "aü"),
            ("Grüße", "Grüße"),
            ("=?utf-8?q?a=0D=0Ab=00c?=", "a  b c"),
            ("a\r\n b", "a b"),
            ("", ""),
        ] {
            let header = read(&format!("Subject: {value}\r\nSubject: second\r\n"));
            assert_eq!(header.subject.as_deref(), Some(subject), "{value:?}");
        }
        assert_eq!(read("X: y\r\n").subject, None);
        assert_eq!(read(&format!("Subject: {}\r\n", "x".repeat(5000))).subject.unwrap().len(), MAX_SUBJECT);
    }
}
