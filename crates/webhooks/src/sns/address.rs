//! Checks the URLs in a message. A receiver fetches them before it knows whether the message is authentic, so they must
//! point to the notification service.

use std::str::FromStr;

use url::{Position, Url};

/// The hosts of signing certificates: `host`, or `host:port` for another port than 443.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateHosts(Vec<String>);

/// A malformed list of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be host or host:port in lowercase, separated by commas, and without the port 443")]
pub struct InvalidHosts;

impl FromStr for CertificateHosts {
    type Err = InvalidHosts;

    fn from_str(text: &str) -> Result<Self, InvalidHosts> {
        text.split(',').map(|host| canonical(host.trim())).collect::<Option<_>>().map(Self).ok_or(InvalidHosts)
    }
}

/// Returns a host with an optional port unchanged. Returns `None` if a parsed URL would spell it differently.
fn canonical(host: &str) -> Option<String> {
    let url = Url::parse(&format!("https://{host}/")).ok()?;
    (url[Position::BeforeHost..Position::AfterPort] == *host).then(|| host.to_owned())
}

impl CertificateHosts {
    /// Returns the host of Amazon SNS in the region of a topic: `sns.<region>.amazonaws.com`, and
    /// `sns.<region>.amazonaws.com.cn` in China. Returns `None` if the ARN names no region of Amazon.
    #[must_use]
    pub fn of_topic(arn: &str) -> Option<Self> {
        let mut parts = arn.split(':').skip(1);
        let (partition, region) = (parts.next()?, parts.nth(1)?);
        let suffix = if partition == "aws-cn" { ".cn" } else { "" };
        is_region(region).then(|| Self(vec![format!("sns.{region}.amazonaws.com{suffix}")]))
    }

    /// Returns whether the certificate may come from this origin. A URL is allowed only with `https` and without a user
    /// and a password.
    #[must_use]
    pub fn allow(&self, url: &Url) -> bool {
        url.scheme() == "https" && self.contains(&url[Position::BeforeUsername..Position::AfterPort])
    }

    fn contains(&self, authority: &str) -> bool {
        self.0.iter().any(|host| host == authority)
    }
}

/// Returns whether this is the name of a region: words and a number, such as `us-gov-west-1`.
fn is_region(text: &str) -> bool {
    let Some((words, number)) = text.rsplit_once('-') else { return false };
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_number = (1..=2).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && words.contains('-') && words.split('-').all(is_word)
}

/// Parses the URL of a certificate: `https://<host>/SimpleNotificationService-<hex>.pem`. The check compares the text,
/// so that no other spelling of an allowed URL is accepted.
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

/// Splits an https URL into its host with the port, and its path.
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
    fn certificates_come_from_the_region_of_the_topic() {
        for (region, host) in [
            ("aws:sns:us-east-1", "sns.us-east-1.amazonaws.com"),
            ("aws:sns:eu-central-1", "sns.eu-central-1.amazonaws.com"),
            ("aws-us-gov:sns:us-gov-west-1", "sns.us-gov-west-1.amazonaws.com"),
            ("aws-cn:sns:cn-north-1", "sns.cn-north-1.amazonaws.com.cn"),
            ("aws:sns:ap-southeast-10", "sns.ap-southeast-10.amazonaws.com"),
        ] {
            let hosts = CertificateHosts::of_topic(&format!("arn:{region}:123456789012:mail")).unwrap();
            assert!(is_allowed(&format!("https://{host}/SimpleNotificationService-{HEX}.pem"), &hosts), "{host}");
        }
        for region in ["", "us-east", "evil", "us--1", "US-EAST-1", "us-east-1.evil.example/", "us-east-123"] {
            assert_eq!(CertificateHosts::of_topic(&format!("arn:aws:sns:{region}:1:mail")), None, "{region}");
        }
        let hosts = CertificateHosts::of_topic("arn:aws:sns:us-east-1:123456789012:mail").unwrap();
        for host in [
            "",
            "sns.us-west-2.amazonaws.com",
            "sns.us-east-1.amazonaws.com.cn",
            "sns.amazonaws.com",
            "sns..amazonaws.com",
            "sns.us-east-1.amazonaws.com.",
            "sns.us-east-1.amazonaws.com.evil.example",
            "sns.us-east-1.amazonaws.com:443",
            "sns.us-east-1.amazonaws.com:8443",
            "SNS.us-east-1.amazonaws.com",
            "sns.US-EAST-1.amazonaws.com",
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
            assert!(!is_allowed(&format!("https://{host}/SimpleNotificationService-{HEX}.pem"), &hosts), "{host}");
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
