//! Redirect URIs of clients (RFC 6749 section 3.1.2, RFC 8252 section 7, RFC 9700 section 4.1).

use std::fmt;

use url::{Host, Url};

/// The longest redirect URI.
const MAX_LENGTH: usize = 1024;

/// A redirect URI as a client registers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectUri {
    text: String,
    /// The text without its port, if the host is a loopback address.
    without_port: Option<String>,
}

/// A URI that cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRedirectUri {
    #[error(
        "must be an absolute URI without white space, control characters or backslashes, of at most 1024 characters"
    )]
    Malformed,
    #[error("must not have a fragment")]
    Fragment,
    #[error("must not have a user name or a password")]
    Userinfo,
    #[error(
        "must use https, http with a loopback address, or a private-use scheme with a dot, such as com.example.app:/done"
    )]
    Scheme,
    #[error("must not have a parameter of the authorization response in its query: code, state, iss or error")]
    ReservedParameter,
}

/// The parameters of an authorization response (RFC 6749 section 4.1.2, RFC 9207). A redirect URI must not contain them
/// in its query, because the response would then contain them twice.
const RESPONSE_PARAMETERS: [&str; 6] = ["code", "state", "iss", "error", "error_description", "error_uri"];

impl RedirectUri {
    /// Parses a URI for a registration.
    ///
    /// # Errors
    /// Returns an error for a relative URI, a fragment, userinfo, plain http to a host other than loopback, any other
    /// scheme without a dot (RFC 8252 section 7.1), or a parameter of the authorization response.
    pub fn parse(text: &str) -> Result<Self, InvalidRedirectUri> {
        let is_plain = text.len() <= MAX_LENGTH && text.chars().all(|c| c.is_ascii_graphic() && c != '\\');
        let url = Url::parse(text).ok().filter(|_| is_plain).ok_or(InvalidRedirectUri::Malformed)?;
        if text.contains('#') {
            return Err(InvalidRedirectUri::Fragment);
        }
        if !url.username().is_empty() || url.password().is_some() || authority(text).is_some_and(|it| it.contains('@'))
        {
            return Err(InvalidRedirectUri::Userinfo);
        }
        let is_web = matches!(url.scheme(), "https" | "http");
        // The parser accepts `https:example.org` and corrects it, but a browser or another library may not.
        if is_web && (authority(text).is_none_or(str::is_empty) || !url.has_host()) {
            return Err(InvalidRedirectUri::Malformed);
        }
        let allowed = match url.scheme() {
            "https" => true,
            "http" => is_loopback(&url),
            scheme => scheme.contains('.'),
        };
        if !allowed {
            return Err(InvalidRedirectUri::Scheme);
        }
        if url.query_pairs().any(|(name, _)| RESPONSE_PARAMETERS.contains(&name.as_ref())) {
            return Err(InvalidRedirectUri::ReservedParameter);
        }
        let without_port = is_loopback(&url).then(|| without_port(text)).flatten();
        Ok(Self { text: text.to_owned(), without_port })
    }

    /// Returns whether a request may redirect to `requested`. The texts must be equal, or differ only in the port of a
    /// loopback address (RFC 8252 section 7.3).
    #[must_use]
    pub fn matches(&self, requested: &str) -> bool {
        if self.text == requested {
            return true;
        }
        let Some(registered) = &self.without_port else { return false };
        Self::parse(requested).is_ok_and(|requested| requested.without_port.as_ref() == Some(registered))
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the host that a user recognizes, or the private-use scheme of a native app. The text after such a scheme
    /// is arbitrary, even in the place of a host.
    #[must_use]
    pub fn host(&self) -> String {
        let Ok(url) = Url::parse(&self.text) else { return String::new() };
        let host = url.host_str().filter(|_| matches!(url.scheme(), "https" | "http"));
        host.unwrap_or(url.scheme()).to_owned()
    }
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(feature = "server")]
/// Appends parameters to the query of a redirect URI that [`RedirectUri::matches`] accepted.
pub(crate) fn with_parameters(redirect_uri: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(parameters);
    let separator = match redirect_uri.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some(_) => "&",
    };
    format!("{redirect_uri}{separator}{}", query.finish())
}

/// Returns the text between `//` and the next `/`, `?` or `#`.
fn authority(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(':')?;
    rest.strip_prefix("//")?.split(['/', '?', '#']).next()
}

fn is_loopback(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        }
}

/// Returns the text without the port of its authority.
fn without_port(text: &str) -> Option<String> {
    let authority = authority(text)?;
    let (before, after) = text.split_once(authority)?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
        _ => authority,
    };
    Some(format!("{before}{host}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_uris_are_restricted() {
        use InvalidRedirectUri::{Fragment, Malformed, ReservedParameter, Scheme, Userinfo};
        for accepted in [
            "https://app.example/callback",
            "https://app.example",
            "https://app.example/",
            "https://app.example:8443/callback?tenant=1",
            "https://app.example/a%20b",
            "https://xn--bcher-kva.example/callback",
            "https://192.0.2.1/callback",
            "https://[2001:db8::1]/callback",
            "http://127.0.0.1/callback",
            "http://127.0.0.1:4000/callback",
            "http://127.1.2.3/callback",
            "http://[::1]:4000/callback",
            "http://localhost:3000/callback",
            "com.example.app:/callback",
            "com.example.app://callback",
            "com.example.app:callback",
        ] {
            assert!(RedirectUri::parse(accepted).is_ok(), "{accepted}");
        }
        for (rejected, reason) in [
            ("", Malformed),
            ("/callback", Malformed),
            ("callback", Malformed),
            ("//app.example/callback", Malformed),
            ("https:app.example/callback", Malformed),
            ("https:/app.example/callback", Malformed),
            ("https:///app.example/callback", Malformed),
            ("https://", Malformed),
            ("https://app.example/call back", Malformed),
            (" https://app.example/callback", Malformed),
            ("https://app.example/callback\n", Malformed),
            ("https://app.example/\u{0}", Malformed),
            ("https://app.example\\callback", Malformed),
            ("https://app.example/c\u{e9}", Malformed),
            ("https://app.example:99999/", Malformed),
            ("https://[::1", Malformed),
            ("https://app.example/callback#", Fragment),
            ("https://app.example/callback#done", Fragment),
            ("com.example.app:/callback#done", Fragment),
            ("https://app.example/callback?code=1", ReservedParameter),
            ("https://app.example/callback?a=1&st%61te=1", ReservedParameter),
            ("com.example.app:/callback?error", ReservedParameter),
            ("https://user@app.example/callback", Userinfo),
            ("https://user:password@app.example/callback", Userinfo),
            ("https://@app.example/callback", Userinfo),
            ("https://app.example@evil.example/callback", Userinfo),
            ("http://app.example/callback", Scheme),
            ("http://127.0.0.1.evil.example/callback", Scheme),
            ("http://localhost.evil.example/callback", Scheme),
            ("http://10.0.0.1/callback", Scheme),
            ("http://0.0.0.0/callback", Scheme),
            ("http://[::2]/callback", Scheme),
            ("myapp:/callback", Scheme),
            ("javascript:alert(1)", Scheme),
            ("data:text/html,x", Scheme),
            ("file:///etc/passwd", Scheme),
            ("ftp://app.example/", Scheme),
            ("ws://app.example/", Scheme),
            ("blob:https://app.example/x", Scheme),
            ("urn:ietf:wg:oauth:2.0:oob", Scheme),
        ] {
            assert_eq!(RedirectUri::parse(rejected), Err(reason), "{rejected:?}");
        }
        assert_eq!(RedirectUri::parse(&format!("https://app.example/{}", "a".repeat(1024))), Err(Malformed));
    }

    #[test]
    fn requested_uris_must_be_equal_except_for_loopback_ports() {
        for (registered, requested, expected) in [
            ("https://app.example/callback", "https://app.example/callback", true),
            ("https://app.example/callback", "https://app.example/callback/", false),
            ("https://app.example/callback", "https://app.example/callback?x=1", false),
            ("https://app.example/callback", "https://app.example/Callback", false),
            ("https://app.example/callback", "https://APP.example/callback", false),
            ("https://app.example/callback", "https://app.example:443/callback", false),
            ("https://app.example/callback", "https://app.example/x/../callback", false),
            ("https://app.example/callback", "https://app.example/%63allback", false),
            ("https://app.example/callback", "http://app.example/callback", false),
            ("https://app.example/callback", "https://app.example.evil.example/callback", false),
            ("https://app.example/callback", "https://app.example/callback#x", false),
            ("https://app.example/callback", "https://evil.example/callback", false),
            ("https://app.example/callback", "", false),
            ("https://app.example/callback?a=1", "https://app.example/callback?a=1", true),
            ("https://app.example/callback?a=1", "https://app.example/callback", false),
            ("https://app.example:8443/callback", "https://app.example:8444/callback", false),
            ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback", true),
            ("http://127.0.0.1:4000/callback", "http://127.0.0.1:49152/callback", true),
            ("http://127.0.0.1:4000/callback", "http://127.0.0.1/callback", true),
            ("http://[::1]/callback", "http://[::1]:49152/callback", true),
            ("http://localhost/callback", "http://localhost:49152/callback", true),
            ("http://127.0.0.1/callback", "http://127.0.0.1:49152/other", false),
            ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback?x=1", false),
            ("http://127.0.0.1/callback", "http://127.0.0.2:49152/callback", false),
            ("http://127.0.0.1/callback", "http://localhost:49152/callback", false),
            ("http://127.0.0.1/callback", "https://127.0.0.1:49152/callback", false),
            ("http://127.0.0.1/callback", "http://127.0.0.1:49152@evil.example/callback", false),
            ("http://127.0.0.1/callback", "http://127.0.0.1:49152/callback#x", false),
            ("http://127.0.0.1/callback", "http://127.0.0.1:/callback", true),
            ("com.example.app:/callback", "com.example.app:/callback", true),
            ("com.example.app:/callback", "com.example.app:/other", false),
            ("com.example.app://127.0.0.1:1/x", "com.example.app://127.0.0.1:2/x", false),
        ] {
            let uri = RedirectUri::parse(registered).expect(registered);
            assert_eq!(uri.matches(requested), expected, "{registered} {requested}");
        }
    }

    #[cfg(feature = "server")]
    #[test]
    fn parameters_are_appended_to_the_query() {
        for (uri, expected) in [
            ("https://app.example/cb", "https://app.example/cb?state=a+%26b"),
            ("https://app.example/cb?x=1", "https://app.example/cb?x=1&state=a+%26b"),
            ("https://app.example/cb?", "https://app.example/cb?state=a+%26b"),
            ("com.example.app:/cb", "com.example.app:/cb?state=a+%26b"),
        ] {
            assert_eq!(with_parameters(uri, &[("state", "a &b")]), expected);
        }
    }
}
