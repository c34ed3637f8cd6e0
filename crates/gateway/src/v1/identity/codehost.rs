//! Sign-in at the code host. The code host redirects the browser back to this API, which redirects it to the client.
//! The fragment of the client's URL contains the result.

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::web::Data;
use identity::{Identity, LoginStart, Session};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::authority::{Anonymous, SignIn};
use crate::config::Config;
use crate::http::{Query, RequestHeaders, Routes, SignInRedirect};
use crate::limits::Limiters;
use crate::problem::Problem;

/// All characters except the unreserved ones (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("codehost", "Sign-in at the code host.");
    area.get("start", "/v1/auth/codehost/start", start).summary("Start a sign-in at the code host");
    area.get("callback", "/v1/auth/codehost/callback", callback)
        .summary("Complete a sign-in after the redirect from the code host")
        .description(
            "The response redirects the browser to the `redirect` of the start. The fragment of this URL contains \
             `token`, `expiresAt`, `userId` and `subject` as form parameters, or after a failure `error` and `message`. \
             `error` is `access_denied` if the user declined the sign-in or the code host rejected its code, \
             `codehost_unavailable` if the code host is unreachable, returned another error or sent an invalid \
             response, or another code of this API, such as `unavailable`.",
        );
}

/// The query of a sign-in.
#[derive(Debug, Deserialize, ToSchema)]
struct Start {
    /// The URL to redirect to after the sign-in. The installation must allow its prefix. Its fragment will contain the
    /// result.
    #[schema(pattern = r"^https?://[^\s\\#]+$", example = "http://127.0.0.1/signed-in")]
    #[schema(extensions(("x-rule" = json!("an http or https URL without spaces, backslashes and #"))))]
    redirect: String,
}

/// The authorization response of the code host (RFC 6749 section 4.1.2).
#[derive(Debug, Deserialize, ToSchema)]
struct Callback {
    /// The authorization code.
    #[serde(default)]
    code: Option<String>,
    /// The state of the authorization request.
    state: String,
    /// The error code of a failed sign-in.
    #[serde(default)]
    error: Option<String>,
}

async fn start(
    _: SignIn,
    config: Data<Config>,
    identity: Data<Identity>,
    Query(start): Query<Start>,
) -> Result<SignInRedirect, Problem> {
    let LoginStart { url, state, browser, seconds } = identity.login_begin(&start.redirect).await?;
    let set_cookie = cookie(&config, state.reveal(), browser.reveal(), seconds);
    Ok(SignInRedirect { location: url, cookie: set_cookie })
}

async fn callback(
    by: Anonymous,
    config: Data<Config>,
    (identity, limiters): (Data<Identity>, Data<Limiters>),
    header: RequestHeaders,
    Query(callback): Query<Callback>,
) -> Result<SignInRedirect, Problem> {
    let Callback { code, state, error } = callback;
    let browser = header.cookie(&cookie_name(&config, &state)).unwrap_or_default();
    let result = match (&error, &code) {
        (Some(error), _) => Err(error.as_str()),
        (None, Some(code)) => Ok(code.as_str()),
        (None, None) => Err("no code"),
    };
    let login = identity.login_end(&by.actor, (&state, browser), result, header.get("user-agent")).await?;
    let fragment = match login.outcome {
        Ok(Session { token, expires_at, user_id, subject }) => {
            limiters.remember(&token, user_id);
            fragment(&[
                ("token", token.reveal()),
                ("expiresAt", &expires_at.to_string()),
                ("userId", &user_id.to_string()),
                ("subject", &subject),
            ])
        }
        Err(error) => {
            let problem = Problem::from(error);
            problem.log();
            fragment(&[("error", problem.code().name), ("message", problem.message())])
        }
    };
    let remove_cookie = cookie(&config, &state, "", 0);
    Ok(SignInRedirect { location: format!("{}#{fragment}", login.redirect), cookie: remove_cookie })
}

/// Returns the cookie of a sign-in. Scripts, other hosts and cross-site subrequests have no access to it.
fn cookie(config: &Config, state: &str, value: &str, seconds: i64) -> Cookie<'static> {
    Cookie::build(cookie_name(config, state), value.to_owned())
        .path("/")
        .max_age(Duration::seconds(seconds))
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(config.is_https())
        .finish()
}

/// Returns the name of the cookie. It contains the beginning of the state, so that two tabs can sign in concurrently.
/// Other hosts cannot set a cookie whose name begins with `__Host-` (RFC 6265bis section 4.1.3.2).
fn cookie_name(config: &Config, state: &str) -> String {
    let tab: String = state.chars().skip(8).take(8).filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    format!("{}svc_login_{tab}", if config.is_https() { "__Host-" } else { "" })
}

/// Encodes the pairs so that both `URLSearchParams` and `decodeURIComponent` can decode them.
fn fragment(pairs: &[(&str, &str)]) -> String {
    let encoded = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, RESERVED));
    pairs.iter().map(encoded).collect::<Vec<_>>().join("&")
}
