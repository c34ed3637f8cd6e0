//! The URL of a deployed project.

use std::fmt::{self, Display};
use std::str::FromStr;

/// The placeholder for the hostname.
const HOSTNAME: &str = "{hostname}";

/// The URL template of projects: `https://{hostname}`, optionally with `http` or a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteUrl {
    scheme: &'static str,
    port: Option<u16>,
}

/// The error of an invalid URL template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be https://{{hostname}} or http://{{hostname}}, optionally with a port")]
pub struct InvalidSiteUrl;

impl SiteUrl {
    /// Returns the URL of the project with this hostname, without a trailing slash.
    #[must_use]
    pub fn of(&self, hostname: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{hostname}{port}", self.scheme)
    }

    /// Returns whether visitors use TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.scheme == "https"
    }
}

impl Default for SiteUrl {
    fn default() -> Self {
        Self { scheme: "https", port: None }
    }
}

impl Display for SiteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of(HOSTNAME))
    }
}

impl FromStr for SiteUrl {
    type Err = InvalidSiteUrl;

    fn from_str(text: &str) -> Result<Self, InvalidSiteUrl> {
        let (scheme, rest) = match text.split_once("://").ok_or(InvalidSiteUrl)? {
            ("https", rest) => ("https", rest),
            ("http", rest) => ("http", rest),
            _ => return Err(InvalidSiteUrl),
        };
        let port = match rest.strip_prefix(HOSTNAME).ok_or(InvalidSiteUrl)? {
            "" => None,
            port => Some(port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or(InvalidSiteUrl)?),
        };
        Ok(Self { scheme, port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_is_scheme_hostname_and_optional_port() {
        for (text, expected) in [("https://{hostname}", "https://a.b"), ("http://{hostname}:8088", "http://a.b:8088")] {
            let url: SiteUrl = text.parse().unwrap();
            assert_eq!((url.of("a.b").as_str(), url.to_string().as_str()), (expected, text));
        }
        for text in ["", "https://", "https://x", "ftp://{hostname}", "https://{hostname}/", "https://{hostname}:x"] {
            assert_eq!(text.parse::<SiteUrl>(), Err(InvalidSiteUrl), "{text}");
        }
    }
}
