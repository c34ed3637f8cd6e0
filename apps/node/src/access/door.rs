//! Who is let in, who is shown the way, and the two ways.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{CACHE_CONTROL, LOCATION, RETRY_AFTER};
use actix_web::http::{Method, StatusCode};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use argon2::{Argon2, PasswordVerifier as _};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use protocol::SiteAccess;
use serde::Deserialize;
use settings::counted;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::attempts::Attempts;
use super::form::{ACTION, form};
use super::pass::{COOKIE, Keys, Pass};
use super::policy::{Way, has_bypass_key, way};
use crate::client::{Core, Redemption};
use crate::origin::Origins;
use crate::page::page;

/// Everything of this kind is the node's own, whatever the site holds.
const OWN: &str = "/__svc/access/";
const CALLBACK: &str = "/__svc/access/callback";

/// A password, and a path that is no longer than an address may be.
const LARGEST_FORM: usize = 12 * 1024;

/// How often in a minute one address may try a password, and come back from the dashboard, at each host.
const TRIES: u32 = 10;
const RETURNS: u32 = 30;

/// Longer ones are none.
const LONGEST_CODE: usize = 1024;

/// How long a form may take to arrive, and a password to wait for its turn.
const FORM_PATIENCE: Duration = Duration::from_secs(10);
const TURN_PATIENCE: Duration = Duration::from_millis(100);

/// Passwords that are verified at once: each takes 19 MiB and a core for some 25 ms.
const VERIFIED_AT_ONCE: usize = 2;

/// The doors of all sites.
pub struct Doors {
    core: Core,
    keys: Keys,
    origins: Arc<Origins>,
    attempts: Attempts,
    /// Codes that visitors bring back, each of which costs the control plane a look.
    returns: Attempts,
    verifying: Arc<Semaphore>,
}

/// What the dashboard sends a visitor back with.
#[derive(Deserialize)]
struct Callback {
    code: String,
    #[serde(default)]
    next: String,
}

/// What the form posts.
#[derive(Deserialize)]
struct Form {
    password: String,
    #[serde(default)]
    next: String,
}

impl Doors {
    /// Doors whose key is in the file at `key`.
    pub fn open(core: Core, key: &Path, origins: Arc<Origins>) -> io::Result<Self> {
        let (attempts, returns) = (Attempts::of(TRIES), Attempts::of(RETURNS));
        let verifying = Arc::new(Semaphore::new(VERIFIED_AT_ONCE));
        Ok(Self { core, keys: Keys::open(key)?, origins, attempts, returns, verifying })
    }

    /// Lets a request by, with its payload, that may see the site; any other gets the answer that is for it.
    pub async fn pass(
        &self,
        request: &HttpRequest,
        payload: Payload,
        host: &str,
        project: &str,
        access: &SiteAccess,
    ) -> Result<Payload, HttpResponse> {
        let pass = Pass { host, project, access };
        let path = request.uri().path();
        if path.starts_with(OWN) {
            return Err(match (request.method(), path) {
                (&Method::GET, CALLBACK) => self.callback(request, pass).await,
                (&Method::POST, ACTION) => self.password(request, payload, pass).await,
                _ => page(StatusCode::NOT_FOUND, "There is nothing at this address."),
            });
        }
        let is_public = matches!(way(access), Way::Open);
        let is_in = is_public || has_bypass_key(access, request) || self.has_pass(request, pass);
        if is_in { Ok(payload) } else { Err(self.show_way(request, pass)) }
    }

    fn has_pass(&self, request: &HttpRequest, pass: Pass<'_>) -> bool {
        request.cookies().is_ok_and(|cookies| {
            cookies.iter().any(|cookie| cookie.name() == COOKIE && self.keys.admits(pass, cookie.value()))
        })
    }

    fn show_way(&self, request: &HttpRequest, Pass { host, access, .. }: Pass<'_>) -> HttpResponse {
        let asked = request.uri().path_and_query().map_or("/", |it| it.as_str());
        let next = if request.method() == Method::GET { within(asked) } else { "/" };
        match way(access) {
            Way::Password(_) => form(StatusCode::UNAUTHORIZED, next, None),
            Way::Dashboard if !matches!(*request.method(), Method::GET | Method::HEAD) => {
                page(StatusCode::UNAUTHORIZED, "This site is protected. Open it in a browser to sign in.")
            }
            Way::Dashboard => match self.origins.dashboard() {
                Some(dashboard) => {
                    let (to, next) = (encoded(host), encoded(next));
                    let screen = format!("{dashboard}/access/authorize?to={to}&next={next}");
                    sent_on(HttpResponse::Found(), &screen).finish()
                }
                None => page(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "This site is protected, and who you are cannot be asked now.",
                ),
            },
            Way::Open | Way::None => {
                page(StatusCode::FORBIDDEN, "This site is protected in a way that this node does not know.")
            }
        }
    }

    /// The way back from the dashboard.
    async fn callback(&self, request: &HttpRequest, pass: Pass<'_>) -> HttpResponse {
        let Ok(Callback { code, next }) = serde_urlencoded::from_str(request.query_string()) else {
            return page(StatusCode::BAD_REQUEST, "The address is incomplete. Go back to the site and begin again.");
        };
        if let Err(wait) = self.count(&self.returns, request, pass.host) {
            return later(page(StatusCode::TOO_MANY_REQUESTS, "Too many attempts. Wait a minute."), wait);
        }
        let redeemed = match code.len() {
            0..=LONGEST_CODE => self.core.redeem(pass.host, &code).await,
            _ => Ok(Redemption::Refused),
        };
        match redeemed {
            Ok(Redemption::Of(project)) if project == pass.project => {
                self.let_in(HttpResponse::Found(), pass, within(&next))
            }
            Ok(_) => page(
                StatusCode::FORBIDDEN,
                "This way in was used before, or is older than a minute. Go back to the site and begin again.",
            ),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "a code cannot be redeemed");
                page(StatusCode::SERVICE_UNAVAILABLE, "Who you are cannot be asked at the moment. Try again.")
            }
        }
    }

    /// The form, come back.
    async fn password(&self, request: &HttpRequest, payload: Payload, pass: Pass<'_>) -> HttpResponse {
        let Way::Password(hash) = way(pass.access) else {
            return sent_on(HttpResponse::SeeOther(), "/").finish();
        };
        let body = match timeout(FORM_PATIENCE, payload.to_bytes_limited(LARGEST_FORM)).await {
            Ok(Ok(Ok(body))) => body,
            Ok(Err(_)) => return page(StatusCode::PAYLOAD_TOO_LARGE, "This is more than the form holds."),
            Ok(Ok(Err(_))) | Err(_) => return page(StatusCode::REQUEST_TIMEOUT, "The form did not arrive."),
        };
        let Ok(Form { password, next }) = serde_urlencoded::from_bytes(&body) else {
            return form(StatusCode::BAD_REQUEST, "/", Some("The password is missing."));
        };
        let next = within(&next);
        if let Err(wait) = self.count(&self.attempts, request, pass.host) {
            let words = Some("Too many attempts. Wait a minute.");
            return later(form(StatusCode::TOO_MANY_REQUESTS, next, words), wait);
        }
        let Ok(Ok(place)) = timeout(TURN_PATIENCE, Arc::clone(&self.verifying).acquire_owned()).await else {
            let words = Some("Many people are coming in at this moment. Try again.");
            return later(form(StatusCode::SERVICE_UNAVAILABLE, next, words), Duration::ZERO);
        };
        match is_right(hash.to_owned(), password, place).await {
            Ok(true) => self.let_in(HttpResponse::SeeOther(), pass, next),
            Ok(false) => form(StatusCode::UNAUTHORIZED, next, Some("That is not the password.")),
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "a password cannot be verified");
                page(StatusCode::SERVICE_UNAVAILABLE, "The password cannot be verified at the moment.")
            }
        }
    }

    fn count(&self, attempts: &Attempts, request: &HttpRequest, host: &str) -> Result<(), Duration> {
        attempts.count(counted(self.origins.of(request).client), host, Instant::now())
    }

    fn let_in(&self, response: HttpResponseBuilder, pass: Pass<'_>, next: &str) -> HttpResponse {
        sent_on(response, next).cookie(self.keys.grant(pass, self.origins.is_https())).finish()
    }
}

/// The place is taken until the computation ends, whatever becomes of who asked for it.
async fn is_right(hash: String, password: String, place: OwnedSemaphorePermit) -> anyhow::Result<bool> {
    let verify = move || {
        let verified = Argon2::default().verify_password(password.as_bytes(), hash.as_str());
        drop(place);
        verified
    };
    match spawn_blocking(verify).await? {
        Ok(()) => Ok(true),
        Err(argon2::password_hash::Error::PasswordInvalid) => Ok(false),
        Err(error) => Err(anyhow::anyhow!("{error}")),
    }
}

fn later(mut refusal: HttpResponse, wait: Duration) -> HttpResponse {
    refusal.headers_mut().insert(RETRY_AFTER, (wait.as_secs() + 1).into());
    refusal
}

fn sent_on(mut response: HttpResponseBuilder, to: &str) -> HttpResponseBuilder {
    response.insert_header((LOCATION, to)).insert_header((CACHE_CONTROL, "no-store"));
    response
}

/// Where to go on: a path of this host, however it is read (security rules, "OAuth"); for anything else its first page.
fn within(next: &str) -> &str {
    let mut characters = next.chars();
    let is_path = characters.next() == Some('/')
        && !matches!(characters.next(), Some('/' | '\\'))
        && !next.chars().any(|c| c == '\\' || !c.is_ascii() || c.is_ascii_control());
    if is_path { next } else { "/" }
}

fn encoded(text: &str) -> percent_encoding::PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn what_comes_next_is_of_this_host() {
        for path in ["/", "/a?b=c&d=%2F", "/a//b", "/?next=//x"] {
            assert_eq!(within(path), path);
        }
        for other in ["", "a", "//x", "/\\x", "/a\\b", "https://x", "/a\r\nb", "/\u{e9}", "\\/x", " /"] {
            assert_eq!(within(other), "/", "{other}");
        }
    }
}
