//! Signing in at the code host: the browser leaves, comes back, and goes on with what it got in the fragment.

use actix_web::cookie::time::Duration;
use actix_web::cookie::{Cookie, SameSite};
use actix_web::web::Data;
use identity::{Identity, LoginBegun, Session};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::authority::{SignIn, Stranger};
use crate::config::Config;
use crate::http::{Header, Query, Redirect, Routes};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("codehost", "Signing in at the code host.");
    area.get("start", "/v1/auth/codehost/start", start).summary("Begin to sign in at the code host");
    area.get("callback", "/v1/auth/codehost/callback", callback)
        .summary("Where the code host sends the browser back to");
}

/// Where to go once signed in.
#[derive(Debug, Deserialize, ToSchema)]
struct Start {
    /// An address under one that the deployment allows. What comes of the sign-in is in its fragment.
    #[schema(pattern = r"^https?://[^\s\\#@]+$", example = "http://127.0.0.1/signed-in")]
    redirect: String,
}

/// What the code host says (RFC 6749 section 4.1.2).
#[derive(Debug, Deserialize, ToSchema)]
struct Callback {
    /// What to ask the code host with.
    #[serde(default)]
    code: Option<String>,
    /// What it was sent to the code host with.
    state: String,
    /// Why nobody is signed in.
    #[serde(default)]
    error: Option<String>,
}

async fn start(
    _: SignIn,
    config: Data<Config>,
    identity: Data<Identity>,
    Query(asked): Query<Start>,
) -> Result<Redirect, Problem> {
    let LoginBegun { url, state, browser, seconds } = identity.login_begin(&asked.redirect).await?;
    let keep = cookie(&config, state.reveal(), browser.reveal(), seconds);
    Ok(Redirect { location: url, cookie: keep })
}

async fn callback(
    by: Stranger,
    config: Data<Config>,
    (identity, header): (Data<Identity>, Header),
    Query(said): Query<Callback>,
) -> Result<Redirect, Problem> {
    let Callback { code, state, error } = said;
    let browser = header.cookie(&cookie_name(&config, &state)).unwrap_or_default();
    let said = match (&error, &code) {
        (Some(error), _) => Err(error.as_str()),
        (None, Some(code)) => Ok(code.as_str()),
        (None, None) => Err("no code"),
    };
    let ended = identity.login_end(&by.actor, (&state, &browser), said, header.get("user-agent")).await?;
    let fragment = match ended.outcome {
        Ok(Session { token, expires_at, user_id, subject }) => fragment(&[
            ("token", token.reveal()),
            ("expiresAt", &expires_at.to_string()),
            ("userId", &user_id.to_string()),
            ("subject", &subject),
        ]),
        Err(error) => {
            let problem = Problem::from(error);
            problem.log();
            fragment(&[("error", problem.code().name), ("message", problem.message())])
        }
    };
    let forget = cookie(&config, &state, "", 0);
    Ok(Redirect { location: format!("{}#{fragment}", ended.redirect), cookie: forget })
}

/// The cookie of one sign-in: out of reach of scripts, of other hosts and of what other sites embed.
fn cookie(config: &Config, state: &str, value: &str, seconds: i64) -> Cookie<'static> {
    Cookie::build(cookie_name(config, state), value.to_owned())
        .path("/")
        .max_age(Duration::seconds(seconds))
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(config.is_https())
        .finish()
}

/// By the beginning of its state, so that two tabs may sign in side by side. No other host may set a name that begins
/// with `__Host-` (RFC 6265bis section 4.1.3.2).
fn cookie_name(config: &Config, state: &str) -> String {
    let tab: String = state.chars().skip(8).take(8).filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    format!("{}svc_login_{tab}", if config.is_https() { "__Host-" } else { "" })
}

/// As `URLSearchParams` reads it, and `decodeURIComponent` too.
fn fragment(pairs: &[(&str, &str)]) -> String {
    let encoded = |(name, value): &(&str, &str)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    pairs.iter().map(encoded).collect::<Vec<_>>().join("&")
}
