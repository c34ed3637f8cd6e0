//! `svc db tokens`: users of a database that can expire and be revoked.

use client::Client;
use client::types::{DatabaseEndpoint, DatabaseToken, NewDatabaseToken};

use crate::error::CliError;
use crate::options::PageArgs;
use crate::output::or_dash;
use crate::svc::Svc;

#[derive(clap::Subcommand)]
pub enum Tokens {
    /// List the tokens of the database, newest first
    List(PageArgs),
    /// Create a token and print its URL, which contains its password and is shown only once
    Create {
        /// A name for the list
        name: Option<String>,
        /// How long the token is valid, such as 30m, 12h or 7d. Without it, until it is revoked
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        expires_in: Option<i64>,
    },
    /// Revoke a token. Sessions that are open stay open
    Revoke {
        /// User of the token
        user: String,
    },
}

impl Tokens {
    pub async fn run(self, svc: &Svc<'_>, (client, org, project): (&Client, &str, &str)) -> Result<(), CliError> {
        match self {
            Self::List(page) => {
                let page = client.database_tokens(org, project, &page.paging()).send().await?;
                svc.out.page(&page, ["USER", "NAME", "CREATED", "EXPIRES"], row)
            }
            Self::Create { name, expires_in } => {
                let endpoint = client.database_endpoint(org, project).send().await?;
                let new = NewDatabaseToken { name, expires_in_seconds: expires_in };
                let token = client.database_token_create(org, project, &new).send().await?;
                svc.out.response(&token, |token| url(&endpoint, token))?;
                svc.out.success(format!("created the token {}; its password is not shown again", token.user));
                Ok(())
            }
            Self::Revoke { user } => {
                let revoked = client.database_token_revoke(org, project, &user).send().await?;
                svc.out.empty_response(&revoked, format!("revoked {user}"))
            }
        }
    }
}

fn row(token: &DatabaseToken) -> [String; 4] {
    let DatabaseToken { user, name, created_at, expires_at, .. } = token;
    [user.clone(), or_dash(name.as_deref()), created_at.clone(), or_dash(expires_at.as_deref())]
}

fn url(endpoint: &DatabaseEndpoint, token: &DatabaseToken) -> String {
    let DatabaseEndpoint { host, port, database, sslmode } = endpoint;
    let password = token.password.as_ref().map_or("", |password| password.reveal());
    // An IPv6 address needs brackets. No other part needs an escape.
    let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    format!("postgres://{}:{password}@{host}:{port}/{database}?sslmode={sslmode}", token.user)
}

/// Parses a duration with the unit s, m, h or d to seconds.
fn parse_duration(text: &str) -> Result<i64, &'static str> {
    const EXPECTED: &str = "expected a number with the unit s, m, h or d, such as 12h";
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 60 * 60,
        Some('d') => 24 * 60 * 60,
        _ => return Err(EXPECTED),
    };
    let number = text.strip_suffix(|_: char| true).and_then(|number| number.parse::<u32>().ok());
    number.map(|number| i64::from(number) * unit).ok_or(EXPECTED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(["90s", "30m", "12h", "7d"].map(|it| parse_duration(it).unwrap()), [90, 1800, 43_200, 604_800]);
        for text in ["", "90", "h", "-1h", "1.5h", "1w", "1hé"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
