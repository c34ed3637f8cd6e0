//! The formats of texts, for rules that a pattern cannot state.
//!
//! A text whose parser checks more than the other keywords of its schema has a format in the schema. The check of a
//! request calls the same parser, so that one response lists all invalid fields.

use std::fmt::Display;

use dns::ZoneName;
use domains::{CountryCode, DomainName};
use git::{BranchName, RepoName};
use identity::ParsedKey;
use kernel::{Email, Time};
use orgs::NewSlug;
use projects::{HostName, ProjectName};

/// Checks a text against the format of its schema. A format without a parser accepts every text.
///
/// # Errors
/// Returns the message of the parser.
pub(crate) fn check(format: &str, text: &str) -> Result<(), String> {
    match format {
        "date-time" => discard(text.parse::<Time>()),
        "email" => discard(text.parse::<Email>()),
        "branch-name" => discard(text.parse::<BranchName>()),
        "country-code" => discard(text.parse::<CountryCode>()),
        // The service also rejects names under the platform's domains.
        "custom-hostname" => discard(HostName::parse(text, &[])),
        "new-slug" => discard(text.parse::<NewSlug>()),
        "project-name" => discard(text.parse::<ProjectName>()),
        "registrable-domain" => discard(DomainName::parse(text)),
        "repository-name" => discard(text.parse::<RepoName>()),
        "ssh-public-key" => discard(ParsedKey::parse(text)),
        "zone-name" => discard(ZoneName::parse(text)),
        _ => Ok(()),
    }
}

/// Discards the parsed value, and returns the message of an error.
fn discard<T, E: Display>(parsed: Result<T, E>) -> Result<(), String> {
    parsed.map(drop).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_rules_of_their_types() {
        let long_local = format!("{}@example.org", "a".repeat(65));
        let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILrC93FEIzsjyWuBW+GrPjINWRUtyXJMWak3pXjBZRct ada@laptop";
        for (format, valid, invalid, message) in [
            ("date-time", "2026-11-21T08:00:00Z", "2026-11-21", "must be a time in the format of RFC 3339"),
            (
                "email",
                "ada@example.org",
                long_local.as_str(),
                "must be an e-mail address of at most 254 characters, 64",
            ),
            ("branch-name", "main", "a..b", "must be a name that git accepts for a branch"),
            ("country-code", "DE", "XX", "must be an assigned country code"),
            ("custom-hostname", "www.example.org", "x.org:443", "must be a hostname without scheme, port and path"),
            ("new-slug", "acme", "admin", "is reserved for the platform"),
            ("project-name", "site", "xn--a", "must not begin with xn--"),
            ("registrable-domain", "BÜCHER.example", "www.example.org", "must be one label under a public suffix"),
            ("repository-name", "app", "app.git", "must not end with .git"),
            ("ssh-public-key", key, "ssh-ed25519 AAAA", "is not one line of a .pub file"),
            ("zone-name", "example.org", "co.uk", "is a public suffix"),
        ] {
            assert_eq!(check(format, valid), Ok(()), "{format}");
            let error = check(format, invalid).expect_err(format);
            assert!(error.starts_with(message), "{format}: {error}");
        }
        assert_eq!(check("password", "anything"), Ok(()));
    }
}
