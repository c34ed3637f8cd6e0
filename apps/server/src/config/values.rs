//! Value types of the control plane's settings.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use kernel::domain::{Characters, normalize};

/// The transport of desired state and reports between the control plane and the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreLink {
    /// Through the Postgres of this installation.
    Embedded,
    /// There is no link to nodes.
    Off,
}

/// A normalized http or https URL without a trailing slash: browsers write the host of an origin in lowercase punycode, and
/// omit a default port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url(pub(super) String);

/// A normalized domain name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainName(pub(super) String);

/// The host of an SSH URL, with an optional port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost(pub(super) String);

/// Comma-separated IP addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses(pub(super) Vec<IpAddr>);

/// Comma-separated socket addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets(pub(super) Vec<SocketAddr>);

/// Comma-separated URLs of ACME directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories(pub(super) Vec<url::Url>);

/// A time in seconds from 0 to 60: a number with the unit `s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GracePeriod(pub(super) i64);

impl FromStr for Directories {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = |url: &str| {
            let url: url::Url = url.trim().parse().map_err(|_| "not a URL")?;
            match url.scheme() {
                "https" if url.has_host() => Ok(url),
                _ => Err("must be https URLs (RFC 8555 section 6.1)"),
            }
        };
        let directories: Vec<url::Url> = text.split(',').map(parse).collect::<Result<_, _>>()?;
        let is_unique = |(at, url): (usize, &url::Url)| directories.iter().position(|other| other == url) == Some(at);
        if directories.iter().enumerate().all(is_unique) {
            Ok(Self(directories))
        } else {
            Err("names a directory twice")
        }
    }
}

impl FromStr for GracePeriod {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds = text.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
        seconds.filter(|seconds| (0..=60).contains(seconds)).map(Self).ok_or("expected 0s to 60s")
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        match rest {
            Some(rest) if !rest.is_empty() && !rest.contains(['@', '?', '#', '*', ' ']) && !rest.starts_with('/') => {
                let url = url::Url::parse(text).map_err(|error| format!("not a URL: {error}"))?;
                Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
            }
            _ => Err("not an http or https URL without credentials, query and fragment".to_owned()),
        }
    }
}

impl FromStr for DomainName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        normalize(text, Characters::Host).map(Self).ok_or("must be a domain name such as svc.example.org")
    }
}

impl FromStr for SshHost {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The parser also accepts the other parts of a URL, and an empty port.
        let is_authority = !text.ends_with(':') && !text.contains(['@', '/', '\\', '?', '#', ' ']);
        match url::Url::parse(&format!("http://{text}")) {
            Ok(_) if is_authority && !text.contains(char::is_control) => Ok(Self(text.to_owned())),
            _ => Err("must be a host, or a host and a port such as git.example.org:22"),
        }
    }
}

impl FromStr for Addresses {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|address| address.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Sockets {
    type Err = std::net::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split(',').map(|socket| socket.trim().parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for CoreLink {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "off" => Ok(Self::Off),
            etcd if etcd.starts_with("etcd://") => Err("etcd is not supported in this release; use embedded or off"),
            _ => Err("must be embedded or off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_written_as_a_browser_writes_an_origin() {
        for (text, url) in [
            ("https://Dash.example:443/", "https://dash.example"),
            ("https://d\u{e4}sh.example", "https://xn--dsh-qla.example"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://dash.example/App/", "https://dash.example/App"),
        ] {
            assert_eq!(text.parse(), Ok(Url(url.to_owned())), "{text}");
        }
    }
}
