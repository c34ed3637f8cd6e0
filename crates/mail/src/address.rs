//! Addresses of outgoing mail.

use kernel::Email;
use kernel::domain::{self, Characters};
use lettre::Address;

/// The maximum length of a display name, in characters.
const MAX_NAME_CHARS: usize = 200;

/// An address, and optionally a display name (RFC 5322 section 3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mailbox {
    pub(crate) name: Option<String>,
    pub(crate) address: Email,
}

impl Mailbox {
    /// Parses `address` or `name <address>`. The name may be quoted. A domain beyond ASCII is converted to punycode.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.contains(char::is_control) {
            return None;
        }
        let text = text.trim();
        let (name, address) = match text.strip_suffix('>') {
            Some(text) => text.rsplit_once('<')?,
            None => ("", text),
        };
        let name = unquoted(name.trim());
        // A name with angle brackets could be mistaken for an address.
        if name.contains(['<', '>']) || name.chars().count() > MAX_NAME_CHARS {
            return None;
        }
        let name = Some(name).filter(|name| !name.is_empty());
        Some(Self { name, address: parse_address(address.trim())? })
    }

    /// Returns the domain of the address in lower case.
    pub(crate) fn domain(&self) -> String {
        self.address.as_str().rsplit_once('@').map_or_else(String::new, |(_, domain)| domain.to_ascii_lowercase())
    }

    /// Returns the mailbox for a header. Returns `None` for an address that the library rejects.
    pub(crate) fn header(&self) -> Option<lettre::message::Mailbox> {
        let address: Address = self.address.as_str().parse().ok()?;
        Some(lettre::message::Mailbox::new(self.name.clone(), address))
    }
}

fn parse_address(text: &str) -> Option<Email> {
    if text.is_ascii() {
        return text.parse().ok();
    }
    let (local, name) = text.rsplit_once('@')?;
    format!("{local}@{}", domain::normalize(name, Characters::Host)?).parse().ok()
}

/// Removes the quotes and the escapes of a quoted string.
fn unquoted(text: &str) -> String {
    let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return text.to_owned() };
    let mut chars = quoted.chars();
    std::iter::from_fn(|| chars.next().and_then(|c| if c == '\\' { chars.next() } else { Some(c) })).collect()
}

/// Returns the form in which addresses are compared and suppressed: in lower case, with the domain in punycode.
pub(crate) fn suppression_key(address: &str) -> String {
    let address = address.trim();
    parse_address(address).map_or_else(|| address.to_lowercase(), |parsed| parsed.as_str().to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_have_an_optional_name() {
        let parsed = |text: &str| Mailbox::parse(text).map(|it| (it.name, it.address.to_string()));
        let is = |text: &str, name: Option<&str>, address: &str| {
            assert_eq!(parsed(text), Some((name.map(str::to_owned), address.to_owned())), "{text}");
        };
        is("ada@a.example", None, "ada@a.example");
        is(" <ada@a.example> ", None, "ada@a.example");
        is("Ada Lovelace <ada@a.example>", Some("Ada Lovelace"), "ada@a.example");
        is("Müller, Jörg <joerg@müller.example>", Some("Müller, Jörg"), "joerg@xn--mller-kva.example");
        is(r#""Ada \"Countess\" \\" <ada@a.example>"#, Some(r#"Ada "Countess" \"#), "ada@a.example");
        for text in [
            "",
            "ada",
            "<>",
            "ada@a.example\r\nBcc: eve@b.example",
            "Ada\r\n <ada@a.example>",
            "ada@a.example, eve@b.example",
            "\"<eve@b.example>\" <ada@a.example>",
            "eve@b.example <ada@a.example> <ada@a.example>",
            "jörg@a.example",
            "ada@a.example>",
        ] {
            assert_eq!(parsed(text), None, "{text:?}");
        }
        assert_eq!(parsed(&format!("{} <a@b>", "x".repeat(201))), None);
    }
}
