//! E-mail addresses.

use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;

use crate::InvalidText;

const PATTERN: &str = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";

/// The longest part before the `@` (RFC 5321 section 4.5.3.1.1).
const MAX_LOCAL_LENGTH: usize = 64;

const MEANING: &str = "an e-mail address of at most 254 characters, 64 of them before the @";

/// An e-mail address: a dot-string (RFC 5321 section 4.1.2), `@` and a domain. Quoted parts and address literals are
/// not allowed. Domains beyond ASCII are written in punycode.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, diesel::AsExpression, diesel::FromSqlRow)]
#[diesel(sql_type = diesel::sql_types::Text)]
pub struct Email(String);

impl Email {
    /// The longest address, in bytes (RFC 5321 section 4.5.3.1.3, less the angle brackets).
    pub const MAX_LENGTH: usize = 254;

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Email {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        static RULE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(PATTERN).ok());
        let local = text.find('@').unwrap_or_default();
        match &*RULE {
            Some(rule) if local <= MAX_LOCAL_LENGTH && text.len() <= Self::MAX_LENGTH && rule.is_match(text) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(InvalidText::Malformed(MEANING)),
        }
    }
}

crate::string_like!(Email);
crate::string_schema!(Email, |schema| schema
    .format(Some(openapi::SchemaFormat::KnownFormat(openapi::KnownFormat::Email)))
    .pattern(Some(PATTERN))
    .max_length(Some(Email::MAX_LENGTH))
    .description(Some(MEANING))
    .examples(["ada@example.org"]));

#[cfg(test)]
mod tests {
    use super::Email;

    #[test]
    fn only_deliverable_addresses_parse() {
        for text in ["a@b", "ada@example.org", "Ada.Lovelace+x@Mail.Example.org", "o'neill@xn--mnchen-3ya.example"] {
            assert!(text.parse::<Email>().is_ok(), "{text}");
        }
        for text in [
            "",
            "ada",
            "@example.org",
            "ada@",
            "ada@@b",
            "a b@c.org",
            "ada@exa mple.org",
            "a@-b.org",
            "a@b..org",
            ".a@b.org",
            "a..b@c.org",
            "a@[127.0.0.1]",
            "a@x\r\n[10.0.0.1]",
            "a@b.org\n",
            "a\r\nBcc: c@d.org@b.org",
            "\"a b\"@c.org",
            "a<b@c.org>",
        ] {
            assert!(text.parse::<Email>().is_err(), "{text:?}");
        }
        for (local, domain) in [(64, 180), (65, 3), (60, 200)] {
            let domain = "b.".repeat(domain / 2);
            let parsed = format!("{}@{domain}org", "a".repeat(local)).parse::<Email>();
            assert_eq!(parsed.is_ok(), local == 64, "{local} {domain}");
        }
    }
}
