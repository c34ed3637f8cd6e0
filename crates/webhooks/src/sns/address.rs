//! The rule for the URLs in a message. A receiver fetches them before it knows that the message is authentic, so they
//! may only lead to the notification service.

use std::str::FromStr;

use url::{Position, Url};

/// The hosts of signing certificates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CertificateHosts {
    /// The regional hosts of Amazon SNS: `sns.<region>.amazonaws.com`, and `sns.<region>.amazonaws.com.cn` in China.
    #[default]
    Regional,
    /// Exactly these hosts: `host`, or `host:port` for another port than 443.
    Listed(Vec<String>),
}

/// A malformed list of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be host or host:port in lowercase, separated by commas, and without the port 443")]
pub struct InvalidHosts;

impl FromStr for CertificateHosts {
    type Err = InvalidHosts;

    fn from_str(text: &str) -> Result<Self, InvalidHosts> {
        text.split(',').map(|host| canonical(host.trim())).collect::<Option<_>>().map(Self::Listed).ok_or(InvalidHosts)
    }
}

/// Returns a host with an optional port unchanged, or `None` if a parsed URL spells it differently.
fn canonical(host: &str) -> Option<String> {
    let url = Url::parse(&format!("https://{host}/")).ok()?;
    (url[Position::BeforeHost..Position::AfterPort] == *host).then(|| host.to_owned())
}

impl CertificateHosts {
    /// Returns whether the certificate may come from this origin. A URL is allowed only with `https` and without a user
    /// and a password.
    #[must_use]
    pub fn allow(&self, url: &Url) -> bool {
        url.scheme() == "https" && self.contains(&url[Position::BeforeUsername..Position::AfterPort])
    }

    fn contains(&self, authority: &str) -> bool {
        match self {
            Self::Regional => is_regional(authority),
            Self::Listed(hosts) => hosts.iter().any(|host| host == authority),
        }
    }
}

/// Returns whether this is `sns.<region>.amazonaws.com[.cn]`. A region has words and a number, such as `us-gov-west-1`.
fn is_regional(authority: &str) -> bool {
    let region = authority
        .strip_prefix("sns.")
        .and_then(|rest| rest.strip_suffix(".amazonaws.com").or_else(|| rest.strip_suffix(".amazonaws.com.cn")));
    let Some((words, number)) = region.and_then(|region| region.rsplit_once('-')) else { return false };
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && words.contains('-') && words.split('-').all(is_word)
}

/// Parses the URL of a certificate: `https://<host>/SimpleNotificationService-<hex>.pem`. It is compared as text, so
/// that no other spelling of an allowed URL is accepted.
pub(super) fn certificate_url(text: &str, hosts: &CertificateHosts) -> Option<Url> {
    let (authority, path) = split(text)?;
    let hex = path.strip_prefix("/SimpleNotificationService-")?.strip_suffix(".pem")?;
    let is_hex = (1..=128).contains(&hex.len()) && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hex && hosts.contains(authority)).then(|| Url::parse(text).ok())?
}

/// Parses a URL that must have the scheme, the host and the port of `other`, in the same spelling.
pub(super) fn url_at_same_host(text: &str, other: &str) -> Option<Url> {
    let (authority, rest) = split(text)?;
    let is_plain = rest.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\' && byte != b'#');
    let is_same = split(other).is_some_and(|(other, _)| other == authority);
    (is_plain && is_same).then(|| Url::parse(text).ok())?
}

/// Splits an https URL before its path.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = url.strip_prefix("https://")?;
    let path = rest.find('/')?;
    Some(rest.split_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "01d088a6f77103d0fe307c0069e40ed6";

    fn is_allowed(text: &str, hosts: &CertificateHosts) -> bool {
        certificate_url(text, hosts).is_some_and(|url| {
            assert!(hosts.allow(&url), "{url}");
            assert_eq!(url.as_str(), text);
            true
        })
    }

    #[test]
    fn certificates_come_from_regional_hosts() {
        let regional = CertificateHosts::default();
        for host in [
            "sns.us-east-1.amazonaws.com",
            "sns.eu-central-1.amazonaws.com",
            "sns.us-gov-west-1.amazonaws.com",
            "sns.cn-north-1.amazonaws.com.cn",
            "sns.ap-southeast-10.amazonaws.com",
        ] {
            assert!(is_allowed(&format!("https://{host}/SimpleNotificationService-{HEX}.pem"), &regional), "{host}");
        }
        for host in [
            "",
            "sns.amazonaws.com",
            "sns..amazonaws.com",
            "sns.us-east-1.amazonaws.com.",
            "sns.us-east-1.amazonaws.com.evil.example",
            "sns.us-east-1.amazonaws.com.cn.evil.example",
            "sns.us-east-1.amazonaws.com:443",
            "sns.us-east-1.amazonaws.com:8443",
            "SNS.us-east-1.amazonaws.com",
            "sns.US-EAST-1.amazonaws.com",
            "sns.us-east.amazonaws.com",
            "sns.evil.amazonaws.com",
            "sns.us--1.amazonaws.com",
            "sns.us-east-1.s3.amazonaws.com",
            "sns.us-east-1xamazonaws.com",
            "sns-us-east-1.amazonaws.com",
            "evil.example",
            "evil.example#sns.us-east-1.amazonaws.com",
            "user@sns.us-east-1.amazonaws.com",
            "user:password@sns.us-east-1.amazonaws.com",
            "sns.us-east-1.amazonaws.com@evil.example",
            "evil.example\\.sns.us-east-1.amazonaws.com",
            "localhost",
            "127.0.0.1",
            "169.254.169.254",
        ] {
            assert!(!is_allowed(&format!("https://{host}/SimpleNotificationService-{HEX}.pem"), &regional), "{host}");
        }
    }

    #[test]
    fn path_and_scheme_are_exact() {
        let hosts = "certificates.example, localhost:8443,[::1]:8443".parse().unwrap();
        for start in ["https://certificates.example", "https://localhost:8443", "https://[::1]:8443"] {
            assert!(is_allowed(&format!("{start}/SimpleNotificationService-{HEX}.pem"), &hosts), "{start}");
        }
        for url in [
            "",
            "https://",
            "https://certificates.example",
            "https://certificates.example/",
            "http://certificates.example/SimpleNotificationService-0a.pem",
            "HTTPS://certificates.example/SimpleNotificationService-0a.pem",
            "https:/certificates.example/SimpleNotificationService-0a.pem",
            "https:\\\\certificates.example/SimpleNotificationService-0a.pem",
            " https://certificates.example/SimpleNotificationService-0a.pem",
            "https://certificates.example/SimpleNotificationService-0a.pem ",
            "https://certificates.example/SimpleNotificationService-0a.pem\n",
            "https://certificates.example//SimpleNotificationService-0a.pem",
            "https://certificates.example/x/../SimpleNotificationService-0a.pem",
            "https://certificates.example/x/SimpleNotificationService-0a.pem",
            "https://certificates.example/simplenotificationservice-0a.pem",
            "https://certificates.example/SimpleNotificationService-.pem",
            "https://certificates.example/SimpleNotificationService-xy.pem",
            "https://certificates.example/SimpleNotificationService-%30.pem",
            "https://certificates.example/SimpleNotificationService-0a.pem/",
            "https://certificates.example/SimpleNotificationService-0a.pem?x=1",
            "https://certificates.example/SimpleNotificationService-0a.pem#x",
            "https://certificates.example/SimpleNotificationService-0a.crt",
            "https://certificates.example\\SimpleNotificationService-0a.pem",
            "https://certificates.example:443/SimpleNotificationService-0a.pem",
            "https://localhost/SimpleNotificationService-0a.pem",
            "https://localhost:8444/SimpleNotificationService-0a.pem",
            "https://localhost:08443/SimpleNotificationService-0a.pem",
            "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-0a.pem",
            "file:///SimpleNotificationService-0a.pem",
        ] {
            assert!(!is_allowed(url, &hosts), "{url}");
        }
        let long = format!("https://certificates.example/SimpleNotificationService-{}.pem", "a".repeat(129));
        assert!(!is_allowed(&long, &hosts));
    }

    #[test]
    fn subscription_has_the_host_of_the_certificate() {
        let certificate = "https://localhost:8443/SimpleNotificationService-0a.pem";
        let url = "https://localhost:8443/?Action=ConfirmSubscription&TopicArn=arn:aws:sns&Token=0a";
        assert_eq!(url_at_same_host(url, certificate).unwrap().as_str(), url);
        for url in [
            "",
            "https://localhost:8443",
            "https://localhost:8443?Action=ConfirmSubscription",
            "https://localhost/?Action=ConfirmSubscription",
            "http://localhost:8443/?Action=ConfirmSubscription",
            "https://user@localhost:8443/?Action=ConfirmSubscription",
            "https://localhost:8443@evil.example/?Action=ConfirmSubscription",
            "https://localhost:8443.evil.example/",
            "https://LOCALHOST:8443/",
            "https://localhost:8443\\@evil.example/",
            "https://localhost:8443/\\x",
            "https://localhost:8443/#x",
            "https://localhost:8443/ x",
            "https://localhost:8443/\tx",
            "https://localhost:8443/ü",
            "//localhost:8443/",
        ] {
            assert_eq!(url_at_same_host(url, certificate), None, "{url}");
        }
    }

    #[test]
    fn malformed_hosts_are_rejected() {
        for hosts in [
            "",
            ",",
            "a.example,",
            "A.example",
            "a.example:443",
            "a.example:99999",
            "a.example/",
            "a.example/x",
            "user@a.example",
            "https://a.example",
            "a.example b.example",
            "a.example?x",
            "*.a.example/",
            "a.example#x",
        ] {
            assert_eq!(hosts.parse::<CertificateHosts>(), Err(InvalidHosts), "{hosts:?}");
        }
    }
}
