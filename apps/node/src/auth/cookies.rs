//! The session cookie.
//!
//! Its value is the token and the time of issue, `<base64url>.<seconds>`. The time only decides when the node sends the
//! cookie again, so that the browser keeps it; Postgres decides whether the session exists.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::cookie::Cookie;
use actix_web::http::header::COOKIE;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use protocol::{Auth, cookie_values};

use super::store::{TokenDigest, lifetime, slide_interval};
use crate::clock::since_epoch;
use crate::host_cookie::host_cookie;
use crate::random;

/// The name on plain http, where browsers reject the prefix `__Host-`.
const HTTP_NAME: &str = "svc_auth";
const HTTPS_NAME: &str = "__Host-svc_auth";
const TOKEN_BYTES: usize = 32;
/// The length of a token in base64url.
const TOKEN_CHARACTERS: usize = 43;

/// The session cookie of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCookie {
    /// The token in base64url.
    token: String,
    /// When the cookie was issued, in seconds since the Unix epoch.
    issued_at: u64,
}

impl SessionCookie {
    /// Creates a cookie with a random token.
    pub fn new() -> std::io::Result<Self> {
        let token = URL_SAFE_NO_PAD.encode(random::bytes::<TOKEN_BYTES>()?);
        Ok(Self { token, issued_at: since_epoch().as_secs() })
    }

    /// Returns the first well-formed session cookie of a request. Over https, no other host can set one.
    pub fn of(request: &HttpRequest, https: bool) -> Option<Self> {
        let mut values =
            request.headers().get_all(COOKIE).flat_map(|header| cookie_values(header.as_bytes(), name(https)));
        values.find_map(|value| Self::parse(str::from_utf8(value).ok()?))
    }

    fn parse(value: &str) -> Option<Self> {
        let (token, issued_at) = value.split_once('.')?;
        let is_token = token.len() == TOKEN_CHARACTERS && URL_SAFE_NO_PAD.decode(token).is_ok();
        is_token.then_some(Self { token: token.to_owned(), issued_at: issued_at.parse().ok()? })
    }

    /// Returns the digest that identifies the session in the database.
    pub fn digest(&self) -> TokenDigest {
        TokenDigest::of(self.token.as_bytes())
    }

    /// Returns the `Set-Cookie` of the same session, issued now, if the cookie is as old as the interval in which the
    /// session is prolonged.
    pub fn renewal(&self, auth: &Auth, https: bool) -> Option<Cookie<'static>> {
        let now = since_epoch().as_secs();
        let is_due = now.saturating_sub(self.issued_at) >= slide_interval(auth).as_secs();
        let renewed = || Self { token: self.token.clone(), issued_at: now }.to_cookie(lifetime(auth), https);
        is_due.then(renewed)
    }

    /// Returns the `Set-Cookie`.
    pub fn to_cookie(&self, lifetime: Duration, https: bool) -> Cookie<'static> {
        host_cookie(name(https).to_owned(), format!("{}.{}", self.token, self.issued_at), lifetime, https)
    }

    /// Returns the `Set-Cookie` that removes the cookie.
    pub fn removal(https: bool) -> Cookie<'static> {
        host_cookie(name(https).to_owned(), String::new(), Duration::ZERO, https)
    }
}

/// Adds the prefix with which only this host itself can set a cookie. Browsers accept it only over https.
pub(super) fn prefixed(name: &str, https: bool) -> String {
    if https { format!("__Host-{name}") } else { name.to_owned() }
}

const fn name(https: bool) -> &'static str {
    if https { HTTPS_NAME } else { HTTP_NAME }
}

#[cfg(test)]
mod tests {
    use actix_web::cookie::time;
    use actix_web::test::TestRequest;
    use protocol::AuthBrand;

    use super::*;

    #[test]
    fn cookie_is_found_only_under_its_own_name() {
        let session = SessionCookie::new().unwrap();
        let lifetime = Duration::from_secs(86_400 * 30);
        let sent = session.to_cookie(lifetime, true);
        assert_eq!(
            sent.to_string(),
            format!("__Host-svc_auth={}; HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=2592000", sent.value())
        );
        let of = |header: String, https| {
            SessionCookie::of(&TestRequest::default().insert_header((COOKIE, header)).to_http_request(), https)
        };
        let value = sent.value();
        assert_eq!(of(format!("a=b; __Host-svc_auth=x.1; __Host-svc_auth={value}"), true), Some(session.clone()));
        assert_eq!(of(format!("svc_auth={value}"), false), Some(session));
        for other in [
            format!("svc_auth={value}"),
            format!("__Host-svc_auth={value}0x"),
            format!("__Host-svc_auth=\"{value}\""),
            format!("__Host-svc_auth=a{value}"),
            format!("__Host-svc_authx={value}"),
        ] {
            assert_eq!(of(other.clone(), true), None, "{other}");
        }
    }

    #[test]
    fn old_cookie_is_renewed_with_the_same_session() {
        let auth = |session_days| Auth {
            grant: 1,
            session_days,
            brand: AuthBrand::default(),
            provider_revision: 0,
            providers: Vec::new(),
        };
        let new = SessionCookie::new().unwrap();
        let aged = |seconds| SessionCookie { issued_at: new.issued_at - seconds, ..new.clone() };
        assert_eq!(new.renewal(&auth(30), true), None);
        assert_eq!(aged(80_000).renewal(&auth(30), true), None);
        assert!(aged(80_000).renewal(&auth(1), true).is_some());
        let renewed = aged(90_000).renewal(&auth(30), true).unwrap();
        assert_eq!(SessionCookie::parse(renewed.value()).unwrap().digest(), new.digest());
        assert_eq!(renewed.max_age(), Some(time::Duration::days(30)));
        assert_ne!(SessionCookie::new().unwrap().digest(), new.digest());
    }
}
