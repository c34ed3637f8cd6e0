//! Validation of redirect addresses (security rules, "OAuth").
//!
//! A requested address is parsed and compared with each allowed address: scheme, host and port must be equal, and the
//! path must be equal or continue after a `/`. An allowed loopback address without a port allows every port, because a
//! program on the user's machine listens on any free port (RFC 8252 section 7.3). Texts that two parsers may read
//! differently are rejected first. Callers use the parsed address, never the text.

use std::str::FromStr;

use url::Url;

/// The allowed addresses of a setting. Each one also allows the addresses below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList(Vec<AllowedAddress>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedAddress {
    url: Url,
    any_port: bool,
}

/// Loopback addresses that allow every port if they have none. `localhost` is not one of them, because the machine's
/// resolver defines it (section 8.3).
const LOOPBACK: [&str; 2] = ["http://127.0.0.1", "http://[::1]"];

/// An invalid setting. The text omits the value, which may contain a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be comma-separated http or https addresses without user, query, fragment or wildcard")]
pub struct InvalidAllowList;

/// A rejected redirect address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForbiddenAddress {
    #[error("must be an absolute http or https address, without user, fragment, backslash or control characters")]
    Malformed,
    #[error("must be an allowed address, or an address below one")]
    NotAllowed,
}

impl AllowList {
    /// Returns the parsed address if it is allowed.
    ///
    /// # Errors
    /// Returns an error if the address is malformed, ambiguous or not allowed.
    pub fn admit(&self, text: &str) -> Result<Url, ForbiddenAddress> {
        let url = parse(text).ok_or(ForbiddenAddress::Malformed)?;
        if self.0.iter().any(|allowed| allowed.covers(&url)) { Ok(url) } else { Err(ForbiddenAddress::NotAllowed) }
    }
}

impl FromStr for AllowList {
    type Err = InvalidAllowList;

    fn from_str(setting: &str) -> Result<Self, Self::Err> {
        let read = |text: &str| {
            let url = parse(text.trim()).filter(|url| url.query().is_none() && !text.contains('*'));
            let url = url.ok_or(InvalidAllowList)?;
            let any_port = LOOPBACK.contains(&text.trim().split('/').take(3).collect::<Vec<_>>().join("/").as_str());
            Ok(AllowedAddress { url, any_port })
        };
        setting.split(',').map(read).collect::<Result<_, _>>().map(Self)
    }
}

fn parse(text: &str) -> Option<Url> {
    // Reject what the parser silently corrects: it strips white space, converts backslashes and adds slashes.
    let clean = !text.chars().any(|c| c == '\\' || c.is_control() || c.is_whitespace());
    let authority = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"))?;
    let url = Url::parse(text).ok().filter(|_| clean && !authority.starts_with('/'))?;
    let plain = url.has_host() && url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let host = authority.split(['/', '?', '#']).next()?;
    // Reject escapes that leave their segment when they are decoded later.
    let path = text.split('?').next()?.to_ascii_lowercase();
    let ambiguous =
        host.contains('@') || ["%2e", "%2f", "%5c", "%00", "%25"].iter().any(|escape| path.contains(escape));
    (plain && !ambiguous).then_some(url)
}

impl AllowedAddress {
    fn covers(&self, url: &Url) -> bool {
        let base = self.url.path().trim_end_matches('/');
        let rest = url.path().strip_prefix(base);
        url.scheme() == self.url.scheme()
            && url.host() == self.url.host()
            && (self.any_port || url.port_or_known_default() == self.url.port_or_known_default())
            && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(setting: &str) -> AllowList {
        setting.parse().expect(setting)
    }

    #[test]
    fn addresses_below_an_allowed_address_are_accepted() {
        let list = list("https://app.example.org/signed-in, http://localhost:3000");
        for (requested, expected) in [
            ("https://app.example.org/signed-in", "https://app.example.org/signed-in"),
            ("https://app.example.org/signed-in/", "https://app.example.org/signed-in/"),
            ("https://app.example.org/signed-in/a?b=c", "https://app.example.org/signed-in/a?b=c"),
            ("https://APP.example.org:443/signed-in", "https://app.example.org/signed-in"),
            ("http://localhost:3000", "http://localhost:3000/"),
            ("http://localhost:3000/any/where", "http://localhost:3000/any/where"),
        ] {
            assert_eq!(list.admit(requested).map(String::from), Ok(expected.to_owned()), "{requested}");
        }
    }

    #[test]
    fn other_and_ambiguous_addresses_are_rejected() {
        let list = list("https://app.example.org/signed-in,http://localhost:3000");
        for requested in [
            "",
            "/signed-in",
            "//app.example.org/signed-in",
            "https:app.example.org/signed-in",
            "https:///app.example.org/signed-in",
            "javascript:alert(1)",
            "data:text/html,x",
            "http://app.example.org/signed-in",
            "https://app.example.org",
            "https://app.example.org/signed-in-elsewhere",
            "https://app.example.org/signed-in.evil",
            "https://app.example.org/Signed-In",
            "https://app.example.org/other",
            "https://app.example.org:444/signed-in",
            "https://app.example.org.evil.org/signed-in",
            "https://evil.org/https://app.example.org/signed-in",
            "https://app.example.org@evil.org/signed-in",
            "https://user@app.example.org/signed-in",
            "https://user:word@app.example.org/signed-in",
            "https://@app.example.org/signed-in",
            "https://evil.org\\@app.example.org/signed-in",
            "https://app.example.org\\.evil.org/signed-in",
            "https:\\\\app.example.org/signed-in",
            "https://app.example.org/signed-in\\..\\other",
            "https://app.example.org/signed-in/../other",
            "https://app.example.org/signed-in/%2e%2e/other",
            "https://app.example.org/signed-in/.%2E/other",
            "https://app.example.org/signed-in/..%2fother",
            "https://app.example.org/signed-in%2f..%2fother",
            "https://app.example.org/signed-in/%5c..",
            "https://app.example.org/signed-in/%252e%252e/",
            "https://app.example.org/signed-in#token=mine",
            "https://app.example.org/signed-in#",
            " https://app.example.org/signed-in",
            "https://app.example.org/signed-in\n",
            "https://app.example.org/signed-in\t/x",
            "https://app.example.org/signed-in/\u{0}",
            "https://app.example.org./signed-in",
            "https://app\u{3002}example.org/signed-in/%2e",
            "http://localhost:3001/",
            "http://localhost/",
            "http://127.0.0.1:3000/",
            "http://localhost:3000.evil.org/",
        ] {
            assert!(list.admit(requested).is_err(), "{requested:?} was accepted");
        }
    }

    #[test]
    fn loopback_address_without_a_port_allows_every_port() {
        let any_port_list = list("http://127.0.0.1/signed-in,http://[::1]");
        for requested in [
            "http://127.0.0.1:49152/signed-in",
            "http://127.0.0.1/signed-in/a",
            "http://127.0.0.1:80/signed-in",
            "http://[::1]:1/",
        ] {
            assert!(any_port_list.admit(requested).is_ok(), "{requested:?} was rejected");
        }
        for requested in [
            "http://127.0.0.1:49152/",
            "http://127.0.0.1:49152/signed-in-elsewhere",
            "https://127.0.0.1:49152/signed-in",
            "http://127.0.0.2:49152/signed-in",
            "http://localhost:49152/signed-in",
            "http://127.0.0.1.evil.org:49152/signed-in",
            "http://[::2]:1/",
        ] {
            assert!(any_port_list.admit(requested).is_err(), "{requested:?} was accepted");
        }
        // An address with a port allows only that port, even if it is the default port. For hosts other than loopback
        // addresses, an address without a port allows only the default port.
        let exact_list =
            list("http://127.0.0.1:3000,http://[::1]:80,http://localhost,https://127.0.0.1,http://10.0.0.1");
        for requested in [
            "http://127.0.0.1:3001/",
            "http://[::1]:3000/",
            "http://localhost:3000/",
            "https://127.0.0.1:3000/",
            "http://10.0.0.1:3000/",
        ] {
            assert!(exact_list.admit(requested).is_err(), "{requested:?} was accepted");
        }
    }

    #[test]
    fn overly_broad_settings_are_rejected() {
        for setting in
            ["", "*", "https://*.example.org", "app.example.org", "https://a.org,", "https://u@a.org", "ftp://a.org"]
        {
            assert!(setting.parse::<AllowList>().is_err(), "{setting:?}");
        }
    }

    #[test]
    fn error_of_a_setting_omits_its_value() {
        let error = "https://a.example,https://ada:hunter2@b.example".parse::<AllowList>().expect_err("userinfo");
        let texts = format!("{error} {error:?}");
        assert!(!texts.contains("hunter2") && !texts.contains("b.example"), "{texts}");
    }
}
