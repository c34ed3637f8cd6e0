//! The formats of texts, for rules that a pattern cannot state.
//!
//! A type whose parser checks more than the pattern of its schema names a format in the schema. The check of a request
//! calls the same parser, so that one response lists all invalid fields.

use std::fmt::Display;
use std::str::FromStr;

use domains::CountryCode;
use kernel::{Email, Time};
use orgs::NewSlug;

/// Checks a text against the format of its schema. A format without a parser accepts every text.
///
/// # Errors
/// Returns the message of the parser.
pub(crate) fn check(format: &str, text: &str) -> Result<(), String> {
    match format {
        "date-time" => parse::<Time>(text),
        "email" => parse::<Email>(text),
        "country-code" => parse::<CountryCode>(text),
        "new-slug" => parse::<NewSlug>(text),
        _ => Ok(()),
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_rules_of_their_types() {
        let long_local = format!("{}@example.org", "a".repeat(65));
        for (format, valid, invalid, message) in [
            ("date-time", "2026-11-21T08:00:00Z", "2026-11-21", "must be a time in the format of RFC 3339"),
            (
                "email",
                "ada@example.org",
                long_local.as_str(),
                "must be an e-mail address of at most 254 characters, 64",
            ),
            ("country-code", "DE", "XX", "must be an assigned country code"),
            ("new-slug", "acme", "admin", "is reserved for the platform"),
        ] {
            assert_eq!(check(format, valid), Ok(()), "{format}");
            let error = check(format, invalid).expect_err(format);
            assert!(error.starts_with(message), "{format}: {error}");
        }
        assert_eq!(check("password", "anything"), Ok(()));
    }
}
