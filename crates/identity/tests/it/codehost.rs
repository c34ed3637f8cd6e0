//! Sign-in at the code host: bound to one browser, ends once, within ten minutes.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use identity::{CodeHost, CodeHostFailure, CodeHostLogin, Identity, IdentityError, LoginResult, LoginStart, SignIn};
use kernel::{ApiError as _, Code, Provider, Token, TokenKind, hex};
use serde_json::{Value, json};
use testkit::four_at_a_time;

use crate::kit::{Kit, anonymous_actor};

const CALLBACK: &str = "https://api.example.org/v1/auth/codehost/callback";
const REDIRECT: &str = "https://app.example.org/signed-in";
const LOGINS: &str = "SELECT count(*) FROM identity.pending_logins";

/// A code host whose response depends on the code: `refused`, `away`, or the login of the user.
#[derive(Default)]
struct FakeHost {
    /// Redirect URI, state and challenge of each authorize address.
    authorized: Mutex<Vec<[String; 3]>>,
    /// Code, redirect URI and verifier of each exchange.
    exchanged: Mutex<Vec<[String; 3]>>,
}

impl FakeHost {
    fn authorized(&self) -> Vec<[String; 3]> {
        self.authorized.lock().unwrap().clone()
    }

    fn exchanged(&self) -> Vec<[String; 3]> {
        self.exchanged.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl CodeHost for FakeHost {
    fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String {
        self.authorized.lock().unwrap().push([redirect_uri, state, challenge].map(str::to_owned));
        format!("https://codehost.example/authorize?state={state}")
    }

    async fn identify(
        &self,
        code: &str,
        redirect_uri: &str,
        verifier: &str,
    ) -> Result<(SignIn, String), CodeHostFailure> {
        self.exchanged.lock().unwrap().push([code, redirect_uri, verifier].map(str::to_owned));
        match code {
            "refused" => Err(CodeHostFailure::Refused("bad_verification_code".into())),
            "away" => Err(CodeHostFailure::Unavailable("connection refused".into())),
            login => Ok((sign_in(login), login.to_owned())),
        }
    }
}

fn sign_in(login: &str) -> SignIn {
    SignIn {
        provider: Provider::Codehost,
        subject: format!("1000-{login}"),
        name: Some("Ada".to_owned()),
        email: Some("ada@example.org".to_owned()),
        avatar_url: None,
    }
}

fn with_host(kit: &Kit) -> (Identity, Arc<FakeHost>) {
    let host = Arc::new(FakeHost::default());
    let redirects = "https://app.example.org/signed-in,http://localhost:3000".parse().unwrap();
    let login = CodeHostLogin { host: host.clone(), callback: CALLBACK.to_owned(), redirects };
    (kit.identity.clone().with_code_host(login), host)
}

/// Ends the sign-in in the browser that started it, with this code or error.
async fn end(
    identity: &Identity,
    login: &LoginStart,
    response: Result<&str, &str>,
) -> Result<LoginResult, IdentityError> {
    let texts = (login.state.reveal(), login.browser.reveal());
    identity.login_end(&anonymous_actor(), texts, response, Some("Firefox")).await
}

fn is_unknown(ended: &Result<LoginResult, IdentityError>) -> bool {
    matches!(ended, Err(error @ IdentityError::UnknownLogin) if error.code() == &Code::BAD_REQUEST)
}

#[tokio::test(flavor = "multi_thread")]
async fn first_sign_in_creates_an_organization_named_after_the_login() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    for first in [true, false] {
        let login = identity.login_begin("https://app.example.org/signed-in?next=%2Fapps").await.unwrap();
        assert_eq!(kit.db_counts().await[4], i64::from(!first), "starting a sign-in writes no audit event");
        let ended = end(&identity, &login, Ok("ada")).await.unwrap();
        assert_eq!(ended.redirect, "https://app.example.org/signed-in?next=%2Fapps");
        let session = ended.outcome.unwrap();
        assert_eq!((session.subject.as_str(), session.expires_at), ("1000-ada", kit.now().plus_seconds(2_592_000)));
        let events = kit.audited().await;
        let [row] = events.as_slice() else { panic!("one row is expected: {events:?}") };
        let data = json!({ "user": session.user_id, "provider": "codehost", "first": first, "ended": [] });
        assert_eq!((row.event.as_str(), &row.data), ("session.start", &data));
    }
    assert_eq!(kit.db_rows("SELECT slug FROM orgs.orgs").await, [json!({ "slug": "ada" })]);
    let user_agents = "SELECT DISTINCT user_agent FROM identity.sessions";
    assert_eq!(kit.db_rows(user_agents).await, [json!({ "user_agent": "Firefox" })]);
    assert_eq!(kit.db_counts().await, [1, 2, 1, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_that_is_not_allowed_is_rejected() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for redirect in [
        "",
        "/signed-in",
        "https://app.example.org/",
        "https://app.example.org/signed-in-elsewhere",
        "https://app.example.org.evil.org/signed-in",
        "https://app.example.org@evil.org/signed-in",
        "https://app.example.org/signed-in/..",
        "https://app.example.org/signed-in#token=mine",
        "http://app.example.org/signed-in",
        "http://localhost:3001/",
        "javascript:alert(1)",
    ] {
        let error = identity.login_begin(redirect).await.unwrap_err();
        assert_eq!(error.code(), &Code::BAD_REQUEST, "{redirect}");
        assert_eq!(error.details().unwrap()["fields"][0]["path"], json!("redirect"), "{redirect}");
    }
    assert_eq!((host.authorized().len(), kit.database.number(LOGINS).await), (0, 0));
    for redirect in [REDIRECT, "http://localhost:3000/any/where"] {
        identity.login_begin(redirect).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_exchange_sends_the_verifier_of_the_challenge() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let mut logins = Vec::new();
    for _ in 0..2 {
        logins.push(identity.login_begin(REDIRECT).await.unwrap());
    }
    // End the sign-ins in reverse order: each exchange must use its own verifier.
    for login in logins.iter().rev() {
        end(&identity, login, Ok("ada")).await.unwrap().outcome.unwrap();
    }
    let (authorized, mut exchanged) = (host.authorized(), host.exchanged());
    exchanged.reverse();
    for ((login, [to, state, challenge]), [code, redirect_uri, verifier]) in
        logins.iter().zip(&authorized).zip(&exchanged)
    {
        assert_eq!(login.url, format!("https://codehost.example/authorize?state={state}"));
        assert_eq!((state.as_str(), login.seconds), (login.state.reveal(), 600));
        assert_eq!((to.as_str(), redirect_uri.as_str(), code.as_str()), (CALLBACK, CALLBACK, "ada"));
        // RFC 7636 section 4: the verifier has 43 to 128 unreserved characters, and the challenge is its SHA-256.
        assert!((43..=128).contains(&verifier.len()), "{verifier}");
        assert!(verifier.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)), "{verifier}");
        let hash = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
        assert_eq!(*challenge, URL_SAFE_NO_PAD.encode(hash));
        assert_ne!(verifier, challenge);
    }
    assert!(authorized[0] != authorized[1] && exchanged[0] != exchanged[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_state_nor_cookie_nor_verifier_is_stored() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let login = identity.login_begin(REDIRECT).await.unwrap();
    assert_ne!(login.state, login.browser);
    assert!(!format!("{login:?}").contains(login.browser.reveal()));
    let stored = Value::from(kit.db_rows("SELECT t::text FROM identity.pending_logins t").await).to_string();
    assert!(stored.contains(REDIRECT), "{stored}");
    end(&identity, &login, Ok("ada")).await.unwrap().outcome.unwrap();
    let verifier = host.exchanged()[0][2].clone();
    for secret in [login.state.reveal(), login.browser.reveal(), &verifier] {
        // Postgres prints bytes as hex digits.
        assert!(!stored.contains(secret) && !stored.contains(&hex(secret.as_bytes())), "{stored}");
        let events = Value::from(kit.db_rows("SELECT a::text FROM store.audit a").await).to_string();
        assert!(!events.contains(secret), "{events}");
    }
    assert_eq!(kit.database.number(LOGINS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_ends_once() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let login = identity.login_begin(REDIRECT).await.unwrap();
    end(&identity, &login, Ok("ada")).await.unwrap().outcome.unwrap();
    for response in [Ok("ada"), Ok("eve"), Err("access_denied")] {
        assert!(is_unknown(&end(&identity, &login, response).await), "{response:?}");
    }
    // The code host is not called again.
    assert_eq!((host.exchanged().len(), kit.db_counts().await), (1, [1; 5]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_expires_after_ten_minutes() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for (seconds, known) in [(599, true), (600, false), (601, false)] {
        let login = identity.login_begin(REDIRECT).await.unwrap();
        kit.advance(seconds);
        let ended = end(&identity, &login, Ok("ada")).await;
        assert_eq!((ended.is_ok(), is_unknown(&ended)), (known, !known), "{seconds}");
    }
    assert_eq!(host.exchanged().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_ends_only_in_the_browser_that_started_it() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let (mine, theirs) = (identity.login_begin(REDIRECT).await.unwrap(), identity.login_begin(REDIRECT).await.unwrap());
    let made_up = Token::mint(TokenKind::Login, kit.store.clock_rng());
    let session = Token::mint(TokenKind::Session, kit.store.clock_rng());
    let (state, browser) = (mine.state.reveal(), mine.browser.reveal());
    for texts in [
        // A state of another browser, a cookie of another browser, and made-up values.
        (state, theirs.browser.reveal()),
        (theirs.state.reveal(), browser),
        (state, made_up.reveal()),
        (made_up.reveal(), browser),
        (browser, state),
        (state, state),
        (browser, browser),
        (state, ""),
        ("", browser),
        (state, session.reveal()),
        ("' OR 1=1 --", browser),
        (&state[..state.len() - 1], browser),
    ] {
        let ended = identity.login_end(&anonymous_actor(), texts, Ok("ada"), None).await;
        assert!(is_unknown(&ended), "{texts:?}: {ended:?}");
    }
    assert_eq!((host.exchanged().len(), kit.db_counts().await), (0, [0; 5]));
    for (login, user) in [(mine, "ada"), (theirs, "eve")] {
        let session = end(&identity, &login, Ok(user)).await.unwrap().outcome.unwrap();
        assert_eq!(session.subject, format!("1000-{user}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_twenty_concurrent_callbacks_signs_in() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for round in 1..=5 {
        let login = identity.login_begin(REDIRECT).await.unwrap();
        let ends = four_at_a_time((0..20).map(|_| end(&identity, &login, Ok("ada")))).await;
        let (ended, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
        let [Ok(LoginResult { outcome: Ok(_), .. })] = ended.as_slice() else { panic!("one is expected: {ended:?}") };
        assert!(refused.iter().all(is_unknown), "{refused:?}");
        assert_eq!(host.exchanged().len(), round);
        let sessions = i64::try_from(round).unwrap();
        assert_eq!(kit.db_counts().await, [1, sessions, 1, 1, sessions]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_host_error_is_the_outcome_and_ends_the_sign_in() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for (response, code, exchanges) in [
        (Err("access_denied"), &IdentityError::ACCESS_DENIED, 0),
        (Err("server_error"), &IdentityError::CODEHOST_UNAVAILABLE, 0),
        (Err(""), &IdentityError::CODEHOST_UNAVAILABLE, 0),
        (Ok("refused"), &IdentityError::ACCESS_DENIED, 1),
        (Ok("away"), &IdentityError::CODEHOST_UNAVAILABLE, 2),
    ] {
        let login = identity.login_begin(REDIRECT).await.unwrap();
        let ended = end(&identity, &login, response).await.unwrap();
        assert_eq!(ended.redirect, REDIRECT);
        let failed = ended.outcome.unwrap_err();
        assert_eq!(failed.code(), code, "{response:?}");
        // Only the log shows the cause.
        let message = failed.to_string();
        assert!(!message.contains("connection refused") && !message.contains("server_error"), "{message}");
        assert_eq!(host.exchanged().len(), exchanges);
        assert!(is_unknown(&end(&identity, &login, Ok("ada")).await), "{response:?}");
    }
    assert_eq!((kit.db_counts().await, kit.database.number(LOGINS).await), ([0; 5], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_sign_ins_are_purged() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    for _ in 0..3 {
        identity.login_begin(REDIRECT).await.unwrap();
    }
    kit.advance(300);
    let login = identity.login_begin(REDIRECT).await.unwrap();
    assert_eq!(kit.database.number(LOGINS).await, 4);
    kit.advance(300);
    identity.login_begin(REDIRECT).await.unwrap();
    identity.logins_purge().await.unwrap();
    assert_eq!(kit.database.number(LOGINS).await, 2);
    end(&identity, &login, Ok("ada")).await.unwrap().outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_fails_without_a_code_host() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    let login = identity.login_begin(REDIRECT).await.unwrap();
    assert_eq!(kit.identity.login_begin(REDIRECT).await.unwrap_err().code(), &Code::INTERNAL);
    assert_eq!(end(&kit.identity, &login, Ok("ada")).await.unwrap_err().code(), &Code::INTERNAL);
}
