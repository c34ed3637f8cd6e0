//! Which server takes our mail, as `SVC_SMTP_URL` says it.

use std::str::FromStr;

use kernel::Secret;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::person::is_loopback;

/// A server that takes mail:
/// `smtp://[user:password@]host[:port][?tls=required|opportunistic|none]`, or `smtps://…`, which is TLS from the first
/// byte on. What is reserved in user and password is percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmtpConfig {
    /// Its name or address.
    pub host: Host<String>,
    /// Its port: by default 465 of `smtps`, else 587 with credentials and 25 without.
    pub port: u16,
    /// Who we are there.
    pub credentials: Option<Credentials>,
    /// What of the conversation is encrypted.
    pub tls: Tls,
    /// Who vouches for the server beside the system's authorities: certificates as PEM.
    pub authority: Option<String>,
}

/// A user of a mail server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: Secret,
}

/// When a conversation is encrypted. Wherever it is, the certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// Never.
    None,
    /// By STARTTLS where the server offers it. Whoever is on the way can take the offer out.
    Opportunistic,
    /// By STARTTLS, or there is no conversation.
    Required,
    /// From the first byte on.
    Implicit,
}

/// Why a text is no such address. Repeats nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSmtp(pub(crate) &'static str);

const NO_URL: InvalidSmtp = InvalidSmtp(
    "not smtp://[user:password@]host[:port]; in user and password, / : @ ? # and % are written %2F %3A %40 %3F %23 and %25",
);
const TLS_WORDS: InvalidSmtp = InvalidSmtp("tls is one of required, opportunistic and none");

impl FromStr for SmtpConfig {
    type Err = InvalidSmtp;

    fn from_str(text: &str) -> Result<Self, InvalidSmtp> {
        let url = Url::parse(text).map_err(|_| NO_URL)?;
        let implicit = match url.scheme() {
            "smtp" => false,
            "smtps" => true,
            _ => return Err(InvalidSmtp("neither smtp:// nor smtps://")),
        };
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(NO_URL);
        }
        let host = host(&url)?;
        let credentials = credentials(&url)?;
        let tls = match (asked(&url)?, implicit, &credentials) {
            (None, true, _) => Tls::Implicit,
            (Some(_), true, _) => return Err(InvalidSmtp("smtps:// is TLS already; tls= is for smtp://")),
            (Some(Tls::Opportunistic), false, Some(_)) if !is_loopback(&host) => {
                return Err(InvalidSmtp(
                    "tls=opportunistic would show the password to whoever takes TLS out on the way",
                ));
            }
            (Some(tls), false, _) => tls,
            (None, false, Some(_)) if !is_loopback(&host) => Tls::Required,
            (None, false, _) => Tls::Opportunistic,
        };
        let port = match (url.port(), implicit, &credentials) {
            (Some(0), _, _) => return Err(InvalidSmtp("there is no port 0")),
            (Some(port), _, _) => port,
            (None, true, _) => 465,
            (None, false, Some(_)) => 587,
            (None, false, None) => 25,
        };
        Ok(Self { host, port, credentials, tls, authority: None })
    }
}

fn host(url: &Url) -> Result<Host<String>, InvalidSmtp> {
    let text = url.host_str().filter(|host| !host.is_empty()).ok_or(NO_URL)?;
    Host::parse(text).map_err(|_| InvalidSmtp("the host is neither a name nor an address"))
}

fn credentials(url: &Url) -> Result<Option<Credentials>, InvalidSmtp> {
    let (user, password) = match (url.username(), url.password()) {
        ("", None) => return Ok(None),
        (user, Some(password)) if !user.is_empty() && !password.is_empty() => (user, password),
        _ => return Err(InvalidSmtp("a user and a password belong together")),
    };
    let decoded = |text| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| InvalidSmtp("user or password is not UTF-8"))?;
        let fits = !text.contains(char::is_control);
        fits.then(|| text.into_owned()).ok_or(InvalidSmtp("a control character in user or password"))
    };
    Ok(Some(Credentials { user: decoded(user)?, password: Secret::new(decoded(password)?) }))
}

fn asked(url: &Url) -> Result<Option<Tls>, InvalidSmtp> {
    let mut asked = None;
    for (key, value) in url.query_pairs() {
        let tls = match (&*key, &*value) {
            ("tls", "required") => Tls::Required,
            ("tls", "opportunistic") => Tls::Opportunistic,
            ("tls", "none") => Tls::None,
            ("tls", _) => return Err(TLS_WORDS),
            _ => return Err(InvalidSmtp("the one parameter is tls")),
        };
        if asked.replace(tls).is_some() {
            return Err(InvalidSmtp("tls is there twice"));
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, u16, Tls) {
        let config: SmtpConfig = text.parse().unwrap();
        (config.host.to_string(), config.port, config.tls)
    }

    #[test]
    fn ports_and_tls_by_default() {
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
    fn credentials_are_decoded_and_not_shown() {
        let config: SmtpConfig = "smtps://ada%40a.example:p%40ss%2F%C3%BC%25+@mail.example".parse().unwrap();
        let credentials = config.credentials.as_ref().unwrap();
        assert_eq!((credentials.user.as_str(), credentials.password.reveal()), ("ada@a.example", "p@ss/ü%+"));
        assert!(!format!("{config:?}").contains("p@ss"));
    }

    #[test]
    fn what_is_refused_is_told_without_the_password() {
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
