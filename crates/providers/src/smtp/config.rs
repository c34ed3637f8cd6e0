//! The mail server, as configured by `SVC_SMTP_URL`.

use std::str::FromStr;

use kernel::Secret;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::person::is_loopback;

/// A mail server: `smtp://[user:password@]host[:port][?tls=required|opportunistic|none]`, or `smtps://…` for implicit
/// TLS. Reserved characters in user and password are percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpConfig {
    /// The name or address of the server.
    pub host: Host<String>,
    /// The port. Defaults to 465 for `smtps`, to 587 with credentials and to 25 without.
    pub port: u16,
    /// Our credentials.
    pub credentials: Option<Credentials>,
    /// The encryption of the session.
    pub tls: Tls,
    /// A PEM bundle of CA certificates to trust in addition to those of the system.
    pub ca_certificate: Option<String>,
}

/// The credentials of a mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user name.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// The encryption of a session. TLS always verifies the certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// No encryption.
    None,
    /// STARTTLS if the server offers it. An attacker on the network can remove the offer.
    Opportunistic,
    /// STARTTLS. The session fails without it.
    Required,
    /// Implicit TLS, from the first byte.
    Implicit,
}

/// The reason why an address or a setting is invalid. It contains no part of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSmtp(pub(crate) &'static str);

const INVALID_URL: InvalidSmtp = InvalidSmtp(
    "must be smtp://[user:password@]host[:port]; in user and password, write / : @ ? # % as %2F %3A %40 %3F %23 %25",
);
const INVALID_TLS: InvalidSmtp = InvalidSmtp("tls must be required, opportunistic or none");

impl FromStr for SmtpConfig {
    type Err = InvalidSmtp;

    fn from_str(text: &str) -> Result<Self, InvalidSmtp> {
        let url = Url::parse(text).map_err(|_| INVALID_URL)?;
        let implicit = match url.scheme() {
            "smtp" => false,
            "smtps" => true,
            _ => return Err(InvalidSmtp("the scheme must be smtp:// or smtps://")),
        };
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(INVALID_URL);
        }
        let host = host(&url)?;
        let credentials = credentials(&url)?;
        let tls = match (tls_parameter(&url)?, implicit, &credentials) {
            (None, true, _) => Tls::Implicit,
            (Some(_), true, _) => return Err(InvalidSmtp("smtps:// always uses TLS; use tls= only with smtp://")),
            (Some(Tls::Opportunistic), false, Some(_)) if !is_loopback(&host) => {
                return Err(InvalidSmtp(
                    "tls=opportunistic with a password is insecure because an attacker can disable TLS; use required",
                ));
            }
            (Some(tls), false, _) => tls,
            (None, false, Some(_)) if !is_loopback(&host) => Tls::Required,
            (None, false, _) => Tls::Opportunistic,
        };
        let port = match (url.port(), implicit, &credentials) {
            (Some(0), _, _) => return Err(InvalidSmtp("the port must not be 0")),
            (Some(port), _, _) => port,
            (None, true, _) => 465,
            (None, false, Some(_)) => 587,
            (None, false, None) => 25,
        };
        Ok(Self { host, port, credentials, tls, ca_certificate: None })
    }
}

fn host(url: &Url) -> Result<Host<String>, InvalidSmtp> {
    let text = url.host_str().filter(|host| !host.is_empty()).ok_or(INVALID_URL)?;
    Host::parse(text).map_err(|_| InvalidSmtp("the host must be a name or an IP address"))
}

fn credentials(url: &Url) -> Result<Option<Credentials>, InvalidSmtp> {
    let (user, password) = match (url.username(), url.password()) {
        ("", None) => return Ok(None),
        (user, Some(password)) if !user.is_empty() && !password.is_empty() => (user, password),
        _ => return Err(InvalidSmtp("set both a user and a password, or neither")),
    };
    let decode = |text| {
        let text =
            percent_decode_str(text).decode_utf8().map_err(|_| InvalidSmtp("user and password must be UTF-8"))?;
        let is_valid = !text.contains(char::is_control);
        is_valid.then(|| text.into_owned()).ok_or(InvalidSmtp("user and password must not contain control characters"))
    };
    Ok(Some(Credentials { user: decode(user)?, password: Secret::new(decode(password)?) }))
}

fn tls_parameter(url: &Url) -> Result<Option<Tls>, InvalidSmtp> {
    let mut parameter = None;
    for (key, value) in url.query_pairs() {
        let tls = match (&*key, &*value) {
            ("tls", "required") => Tls::Required,
            ("tls", "opportunistic") => Tls::Opportunistic,
            ("tls", "none") => Tls::None,
            ("tls", _) => return Err(INVALID_TLS),
            _ => return Err(InvalidSmtp("the only supported parameter is tls")),
        };
        if parameter.replace(tls).is_some() {
            return Err(InvalidSmtp("tls must be set only once"));
        }
    }
    Ok(parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, u16, Tls) {
        let config: SmtpConfig = text.parse().unwrap();
        (config.host.to_string(), config.port, config.tls)
    }

    #[test]
    fn port_and_tls_have_defaults() {
        let is = |text: &str, host: &str, port, tls| assert_eq!(parsed(text), (host.to_owned(), port, tls), "{text}");
        is("smtp://mail.example", "mail.example", 25, Tls::Opportunistic);
        is("smtp://mail.example/", "mail.example", 25, Tls::Opportunistic);
        is("smtp://mail.example:2525?tls=required", "mail.example", 2525, Tls::Required);
        is("smtp://mail.example?tls=none", "mail.example", 25, Tls::None);
        is("smtp://u:p@mail.example", "mail.example", 587, Tls::Required);
        is("smtp://u:p@mail.example:25?tls=none", "mail.example", 25, Tls::None);
        is("smtp://u:p@MAIL.example?tls=required", "mail.example", 587, Tls::Required);
        is("smtps://mail.example", "mail.example", 465, Tls::Implicit);
        is("smtps://u:p@mail.example:4650", "mail.example", 4650, Tls::Implicit);
        for host in ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"] {
            is(&format!("smtp://u:p@{host}"), host, 587, Tls::Opportunistic);
            is(&format!("smtp://u:p@{host}?tls=opportunistic"), host, 587, Tls::Opportunistic);
        }
        is("smtp://u:p@[2001:db8::1]", "[2001:db8::1]", 587, Tls::Required);
        is("smtp://u:p@10.0.0.1", "10.0.0.1", 587, Tls::Required);
    }

    #[test]
    fn credentials_are_decoded_and_hidden_in_debug() {
        let config: SmtpConfig = "smtps://ada%40a.example:p%40ss%2F%C3%BC%25+@mail.example".parse().unwrap();
        let credentials = config.credentials.as_ref().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.reveal()), ("ada@a.example", "p@ss/ü%+"));
        assert!(!format!("{config:?}").contains("p@ss"));
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        for text in [
            "",
            "mail.example",
            "mail.example:25",
            "http://hush:hush@mail.example",
            "smtp:mail.example",
            "smtp://",
            "smtp:///x",
            "smtp://u:hush@",
            "smtp://u:hush@mail.example:0",
            "smtp://u:hush@mail.example:99999",
            "smtp://u:hush/2@mail.example",
            "smtp://u:hush#2@mail.example",
            "smtp://u:hush?2@mail.example",
            "smtp://u:25/hush@mail.example",
            "smtp://mail.example/path",
            "smtp://mail.example#hush",
            "smtp://u@mail.example",
            "smtp://u:@mail.example",
            "smtp://:hush@mail.example",
            "smtp://u:hush%00@mail.example",
            "smtp://u:hush%0d%0a@mail.example",
            "smtp://u:hush%ff@mail.example",
            "smtp://u:hush@ma il.example",
            "smtp://u:hush@mail.example?tls=hush",
            "smtp://u:hush@mail.example?hush=1",
            "smtp://mail.example?tls=none&tls=required",
            "smtp://u:hush@mail.example?tls=opportunistic",
            "smtps://u:hush@mail.example?tls=none",
            "smtps://u:hush@mail.example?tls=required",
        ] {
            let error = text.parse::<SmtpConfig>().unwrap_err().to_string();
            assert!(!error.contains("hush") && !error.is_empty(), "{text}: {error}");
        }
    }
}
