//! Paths and mailboxes of the envelope (RFC 5321 section 4.1.2, with the internationalization of RFC 6531).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::host::HostName;

/// The maximum length of the local part in octets (RFC 5321 section 4.5.3.1.1).
const MAX_LOCAL: usize = 64;

/// The maximum length of a mailbox in canonical form, in octets. With the brackets, a path has at most 256 (RFC 5321
/// section 4.5.3.1.3). The canonical form counts because it is sent on, and escapes make it longer than its local part.
const MAX_MAILBOX: usize = 254;

/// A path in MAIL or RCPT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// The null sender.
    Null,
    /// `<postmaster>` without a domain: the postmaster of this server.
    Postmaster,
    Mailbox(Mailbox),
}

/// A mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailbox {
    /// The local part after its quotes and escapes were removed. It contains no control characters.
    pub local: String,
    pub domain: Domain,
}

/// The part of a mailbox after the `@`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Domain {
    Name(HostName),
    /// An address in brackets, such as `[192.0.2.1]`, without the brackets.
    Literal(String),
}

impl Path {
    /// Parses a path at the start of a text. Returns it with the rest of the text, or `None` if it is malformed. A
    /// source route is ignored, as RFC 5321 appendix C requires.
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let text = text.strip_prefix('<')?;
        if let Some(rest) = text.strip_prefix('>') {
            return Some((Self::Null, rest));
        }
        let text = if text.starts_with('@') { text.split_once(':')?.1 } else { text };
        let (local, text) = parse_local(text)?;
        if local.is_empty() || local.len() > MAX_LOCAL || local.contains(char::is_control) {
            return None;
        }
        if let Some(rest) = text.strip_prefix('>') {
            return local.eq_ignore_ascii_case("postmaster").then_some((Self::Postmaster, rest));
        }
        let (domain, rest) = text.strip_prefix('@')?.split_once('>')?;
        let mailbox = Mailbox { local, domain: Domain::parse(domain)? };
        (mailbox.to_string().len() <= MAX_MAILBOX).then_some((Self::Mailbox(mailbox), rest))
    }
}

/// Parses a local part: either atoms separated by dots, or a quoted string. Returns it without quotes.
fn parse_local(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (local, rest) = text.split_at(text.find(['@', '>'])?);
        return is_dot_string(local).then(|| (local.to_owned(), rest));
    };
    let (mut local, mut characters) = (String::new(), quoted.chars());
    loop {
        match characters.next()? {
            '"' => return Some((local, characters.as_str())),
            '\\' => local.push(characters.next()?),
            character => local.push(character),
        }
    }
}

fn is_dot_string(text: &str) -> bool {
    let is_atext = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii();
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atext))
}

impl Domain {
    /// Parses a host name or an address literal.
    pub fn parse(text: &str) -> Option<Self> {
        let Some(literal) = text.strip_prefix('[') else { return HostName::parse(text).map(Self::Name) };
        let literal = literal.strip_suffix(']')?;
        let is_address = match literal.get(..5) {
            Some(tag) if tag.eq_ignore_ascii_case("IPv6:") => literal.get(5..)?.parse::<Ipv6Addr>().is_ok(),
            _ => literal.parse::<Ipv4Addr>().is_ok(),
        };
        is_address.then(|| Self::Literal(literal.to_owned()))
    }

    /// Returns the name, if it is not an address.
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Literal(_) => None,
        }
    }
}

impl Mailbox {
    /// Returns whether the mailbox needs SMTPUTF8. The domain never does, because it is in its ASCII form.
    pub fn needs_utf8(&self) -> bool {
        !self.local.is_ascii()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Literal(literal) => write!(f, "[{literal}]"),
        }
    }
}

impl fmt::Display for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local, domain } = self;
        if is_dot_string(local) {
            return write!(f, "{local}@{domain}");
        }
        write!(f, "\"{}\"@{domain}", local.replace('\\', "\\\\").replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<String> {
        Some(match Path::parse(text)? {
            (Path::Null, "") => "null".to_owned(),
            (Path::Postmaster, "") => "postmaster".to_owned(),
            (Path::Mailbox(mailbox), "") => mailbox.to_string(),
            (_, rest) => format!("rest {rest}"),
        })
    }

    #[test]
    fn paths_are_normalized() {
        for (text, expected) in [
            ("<>", "null"),
            ("<Postmaster>", "postmaster"),
            ("<A.b+c@Blog.Acme.EXAMPLE.>", "A.b+c@blog.acme.example"),
            ("<@one.example,@two.example:a@three.example>", "a@three.example"),
            (r#"<"a"@x.example>"#, "a@x.example"),
            (r#"<"a b"@x.example>"#, r#""a b"@x.example"#),
            (r#"<"a@b>\"\\"@x.example>"#, r#""a@b>\"\\"@x.example"#),
            (r#"<"a..b"@x.example>"#, r#""a..b"@x.example"#),
            ("<jörg@bücher.example>", "jörg@xn--bcher-kva.example"),
            ("<a@[192.0.2.1]>", "a@[192.0.2.1]"),
            ("<a@[IPv6:2001:db8::1]>", "a@[IPv6:2001:db8::1]"),
            ("<a@x.example> SIZE=1", "rest  SIZE=1"),
        ] {
            assert_eq!(parse(text).as_deref(), Some(expected), "{text}");
        }
    }

    /// The escapes of a quoted local part count.
    #[test]
    fn canonical_form_has_at_most_254_octets() {
        let quotes = r#"\""#.repeat(64);
        let path = |length: usize| {
            let domain = [&*"a".repeat(60), &*"b".repeat(length - 194), "x"].join(".");
            (format!("<\"{quotes}\"@{domain}>"), format!("\"{quotes}\"@{domain}"))
        };
        let (text, canonical) = path(254);
        assert_eq!((parse(&text), canonical.len()), (Some(canonical), 254));
        assert_eq!(parse(&path(255).0), None);
        let host = ["a.".repeat(126), "a".to_owned()].concat();
        assert_eq!((host.len(), parse(&format!("<\"{quotes}\"@{host}>"))), (253, None));
        assert_eq!(parse(&format!("<aa@{host}>")), None);
    }

    #[test]
    fn malformed_paths_are_rejected() {
        let long = format!("<{}@x.example>", "a".repeat(65));
        for text in [
            "",
            "a@x.example",
            "<a@x.example",
            "<a>",
            "<@x.example>",
            "<a@>",
            "<a@b@x.example>",
            "<a b@x.example>",
            "<.a@x.example>",
            "<a.@x.example>",
            "<a..b@x.example>",
            r#"<"a@x.example>"#,
            r#"<""@x.example>"#,
            "<a@x example>",
            "<a@x_y.example>",
            "<a@[x.example]>",
            "<a@[192.0.2.1>",
            "<a@[192.0.2.256]>",
            "<\"a\rb\"@x.example>",
            "<a@\"x.example\">",
            "<<a@x.example>>",
            &long,
        ] {
            assert!(parse(text).is_none_or(|parsed| parsed.starts_with("rest")), "{text}: {:?}", parse(text));
        }
    }
}
