//! The access gate: checks each request against the site's access policy, and handles sign-in.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{CACHE_CONTROL, COOKIE, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use argon2::{Argon2, PasswordVerifier as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::{SiteAccess, cookie_values};
use serde::Deserialize;
use settings::rate_limit_key;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::attempts::AttemptLimiter;
use super::cookie::{COOKIE_NAME, CookieScope, Keys};
use super::cross_origin::is_cross_origin_action;
use super::form::{CHALLENGE, FORM_PATH, form};
use super::policy::{Challenge, has_bypass_key, required_challenge};
use super::verifications::{VerificationPermit, Verifications};
use crate::client::{Core, Redemption};
use crate::origin::Origins;
use crate::page::{page, with_retry_after};
use crate::path::local_path;

/// The node handles all paths with this prefix; sites cannot.
const PATH_PREFIX: &str = "/__svc/access/";
const CALLBACK_PATH: &str = "/__svc/access/callback";

/// The maximum length of `next` in `POST /v1/access/authorize`. A visitor with a longer path returns to `/`.
const MAX_NEXT_BYTES: usize = 4096;

/// Room for a password of 128 characters and a `next` of the maximum length, with up to three bytes for each byte.
const MAX_FORM_BYTES: usize = 16 * 1024;

/// The limits on attempts per minute of one client address at one host: at the password form, and at the callback.
const MAX_PASSWORD_ATTEMPTS: u32 = 10;
const MAX_CALLBACKS: u32 = 30;

/// The limits per minute of one client network at the password forms of all hosts: on attempts, and on failed ones.
const MAX_NETWORK_ATTEMPTS: u32 = 300;
const MAX_NETWORK_FAILURES: u32 = 30;

/// A longer code is invalid.
const MAX_CODE_BYTES: usize = 1024;

/// The timeout of reading the form.
const FORM_TIMEOUT: Duration = Duration::from_secs(10);

/// The access gate of all sites.
pub struct AccessGate {
    core: Core,
    keys: Keys,
    origins: Arc<Origins>,
    password_attempts: AttemptLimiter,
    network_attempts: AttemptLimiter,
    /// Includes attempts in progress. Otherwise, visitors that disconnect before the response would have no limit.
    network_failures: AttemptLimiter,
    /// Limits callbacks, because each one costs a request to the control plane.
    callbacks: AttemptLimiter,
    verifications: Verifications,
}

/// The query parameters of the redirect from the dashboard.
#[derive(Deserialize)]
struct Callback {
    code: String,
    #[serde(default)]
    next: String,
}

/// The fields of the password form.
#[derive(Deserialize)]
struct Form {
    password: String,
    #[serde(default)]
    next: String,
}

impl AccessGate {
    /// Opens the gate with the cookie key in the file `key`.
    pub fn open(core: Core, key: &Path, origins: Arc<Origins>) -> io::Result<Self> {
        Ok(Self {
            core,
            keys: Keys::open(key)?,
            origins,
            password_attempts: AttemptLimiter::new(MAX_PASSWORD_ATTEMPTS),
            network_attempts: AttemptLimiter::new(MAX_NETWORK_ATTEMPTS),
            network_failures: AttemptLimiter::new(MAX_NETWORK_FAILURES),
            callbacks: AttemptLimiter::new(MAX_CALLBACKS),
            verifications: Verifications::new(),
        })
    }

    /// Returns the payload if the request may see the site; otherwise the response to send: a sign-in challenge, or the
    /// result of one.
    pub async fn authorize(
        &self,
        request: &HttpRequest,
        payload: Payload,
        host: &str,
        project: &str,
        access: &SiteAccess,
    ) -> Result<Payload, HttpResponse> {
        let scope = CookieScope { host, project, access };
        let path = request.uri().path();
        if path.starts_with(PATH_PREFIX) {
            return Err(match (request.method(), path) {
                (&Method::GET, CALLBACK_PATH) => self.callback(request, scope).await,
                (&Method::POST, FORM_PATH) => self.password_form(request, payload, scope).await,
                _ => page(StatusCode::NOT_FOUND, "There is no page at this address. Check the address."),
            });
        }
        let is_public = matches!(required_challenge(access), Challenge::Open);
        let is_authorized = is_public || has_bypass_key(access, request) || self.has_valid_cookie(request, scope);
        if is_authorized { Ok(payload) } else { Err(self.challenge(request, scope)) }
    }

    /// Returns whether a valid access cookie authorizes the request. A cookie never authorizes an action that a page of
    /// another origin caused. Other hosts can add cookies of the same name, but only this node can sign one.
    fn has_valid_cookie(&self, request: &HttpRequest, scope: CookieScope<'_>) -> bool {
        if is_cross_origin_action(request, self.origins.scheme(request)) {
            return false;
        }
        let mut cookies = request.headers().get_all(COOKIE).flat_map(|it| cookie_values(it.as_bytes(), COOKIE_NAME));
        cookies.any(|cookie| self.keys.verify(scope, cookie))
    }

    fn challenge(&self, request: &HttpRequest, CookieScope { host, access, .. }: CookieScope<'_>) -> HttpResponse {
        let requested = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let can_return = request.method() == Method::GET && requested.len() <= MAX_NEXT_BYTES;
        let next = if can_return { local_path(requested) } else { "/" };
        match required_challenge(access) {
            Challenge::Password(_) => form(StatusCode::UNAUTHORIZED, next, None),
            Challenge::Dashboard if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                let text = "This site is protected. Open it in a browser to sign in.";
                let mut response = page(StatusCode::UNAUTHORIZED, text);
                response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
                response
            }
            Challenge::Dashboard => match self.origins.dashboard() {
                Some(dashboard) => {
                    let (to, next) = (percent_encoded(host), percent_encoded(next));
                    let sign_in = format!("{dashboard}/access/authorize?to={to}&next={next}");
                    redirect(HttpResponse::Found(), &sign_in).finish()
                }
                None => page(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "This site is protected, and sign-in is unavailable at the moment. Try again in a minute.",
                ),
            },
            Challenge::Open | Challenge::Unsupported => page(
                StatusCode::FORBIDDEN,
                "This site has an access policy that this server does not support. Contact the owner of the site.",
            ),
        }
    }

    /// Handles the redirect from the dashboard.
    async fn callback(&self, request: &HttpRequest, scope: CookieScope<'_>) -> HttpResponse {
        let Ok(Callback { code, next }) = serde_urlencoded::from_str(request.query_string()) else {
            return page(StatusCode::BAD_REQUEST, "The address is incomplete. Open the site again to sign in.");
        };
        if let Err(wait) = self.record_attempt(&self.callbacks, request, scope.host) {
            return with_retry_after(
                page(StatusCode::TOO_MANY_REQUESTS, "Too many attempts. Wait a minute, then try again."),
                wait,
            );
        }
        let redemption = match code.len() {
            0..=MAX_CODE_BYTES => self.core.redeem(scope.host, &code).await,
            _ => Ok(Redemption::Rejected),
        };
        match redemption {
            Ok(Redemption::Granted(project)) if project == scope.project => {
                self.grant_access(request, HttpResponse::Found(), scope, local_path(&next))
            }
            Ok(_) => page(
                StatusCode::FORBIDDEN,
                "This sign-in link was already used, or is older than a minute. Open the site again to sign in.",
            ),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "failed to redeem an access code");
                page(StatusCode::SERVICE_UNAVAILABLE, "We could not check your sign-in. Try again in a moment.")
            }
        }
    }

    /// Handles a submission of the password form.
    async fn password_form(&self, request: &HttpRequest, payload: Payload, scope: CookieScope<'_>) -> HttpResponse {
        let Challenge::Password(hash) = required_challenge(scope.access) else {
            return redirect(HttpResponse::SeeOther(), "/").finish();
        };
        let body = match timeout(FORM_TIMEOUT, payload.to_bytes_limited(MAX_FORM_BYTES)).await {
            Ok(Ok(Ok(body))) => body,
            Ok(Err(_)) => {
                return page(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "The form is too large. Go back and enter the password again.",
                );
            }
            Ok(Ok(Err(_))) | Err(_) => {
                return page(StatusCode::REQUEST_TIMEOUT, "We did not receive the whole form. Go back and try again.");
            }
        };
        let Ok(Form { password, next }) = serde_urlencoded::from_bytes(&body) else {
            return form(StatusCode::BAD_REQUEST, "/", Some("Enter the password."));
        };
        let next = local_path(&next);
        let network = client_network(self.origins.of(request).client);
        if let Err(wait) = self.record_password_attempt(request, scope.host, network) {
            let error = Some("Too many attempts. Wait a minute, then try again.");
            return with_retry_after(form(StatusCode::TOO_MANY_REQUESTS, next, error), wait);
        }
        let remove_failure = || self.network_failures.remove(network, "");
        let Some(permit) = self.verifications.permit(scope.project).await else {
            remove_failure();
            let error = Some("Many visitors are signing in at the moment. Try again.");
            return with_retry_after(form(StatusCode::SERVICE_UNAVAILABLE, next, error), Duration::ZERO);
        };
        match verify_password(hash.to_owned(), password, permit).await {
            Ok(true) => {
                remove_failure();
                self.grant_access(request, HttpResponse::SeeOther(), scope, next)
            }
            Ok(false) => form(StatusCode::UNAUTHORIZED, next, Some("The password is wrong. Try again.")),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "failed to verify a password");
                page(StatusCode::SERVICE_UNAVAILABLE, "We could not check the password. Try again in a moment.")
            }
        }
    }

    fn record_password_attempt(&self, request: &HttpRequest, host: &str, network: IpAddr) -> Result<(), Duration> {
        self.record_attempt(&self.password_attempts, request, host)?;
        let now = Instant::now();
        self.network_attempts.record(network, "", now)?;
        self.network_failures.record(network, "", now)
    }

    fn record_attempt(&self, limiter: &AttemptLimiter, request: &HttpRequest, host: &str) -> Result<(), Duration> {
        limiter.record(rate_limit_key(self.origins.of(request).client), host, Instant::now())
    }

    fn grant_access(
        &self,
        request: &HttpRequest,
        response: HttpResponseBuilder,
        scope: CookieScope<'_>,
        next: &str,
    ) -> HttpResponse {
        redirect(response, next).cookie(self.keys.issue(scope, self.origins.is_https(request))).finish()
    }
}

/// Verifies a password. The permit is held until the verification ends, even if the visitor disconnects.
async fn verify_password(hash: String, password: String, permit: VerificationPermit) -> anyhow::Result<bool> {
    let verify = move || {
        let result = Argon2::default().verify_password(password.as_bytes(), hash.as_str());
        drop(permit);
        result
    };
    match spawn_blocking(verify).await? {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}

/// Returns the network of a client: its IPv4 address, or the /48 network of its IPv6 address, because a site may get a /48
/// (RFC 6177) with many /64 networks.
fn client_network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !(u128::MAX >> 48)).into(),
        v4 => v4,
    }
}

fn redirect(mut response: HttpResponseBuilder, to: &str) -> HttpResponseBuilder {
    response.insert_header((LOCATION, to)).insert_header((CACHE_CONTROL, "no-store"));
    response
}

fn percent_encoded(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_clients_of_one_48_are_one_network() {
        let network = |address: &str| client_network(address.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3::4"), "2001:db8:1::");
        assert_eq!(network("192.0.2.1"), "192.0.2.1");
    }
}
