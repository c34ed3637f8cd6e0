//! Signing in at the code host: one browser, one answer, ten minutes.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use identity::{CodeHost, CodeHostFailure, CodeHostLogin, Identity, IdentityError, LoginBegun, LoginEnded, SignIn};
use kernel::{Code, Failure as _, Provider, Token, TokenKind};
use serde_json::{Value, json};

use crate::kit::{Kit, anyone};

const CALLBACK: &str = "https://api.example.org/v1/auth/codehost/callback";
const REDIRECT: &str = "https://app.example.org/signed-in";
const LOGINS: &str = "SELECT count(*) FROM identity.logins";

/// A code host where the code says what happens: `refused`, `away`, or the login of whoever signs in.
#[derive(Default)]
struct FakeHost {
    /// Redirect URI, state and challenge of each browser that is sent there.
    asked: Mutex<Vec<[String; 3]>>,
    /// Code, redirect URI and verifier of each exchange.
    exchanged: Mutex<Vec<[String; 3]>>,
}

impl FakeHost {
    fn asked(&self) -> Vec<[String; 3]> {
        self.asked.lock().unwrap().clone()
    }

    fn exchanged(&self) -> Vec<[String; 3]> {
        self.exchanged.lock().unwrap().clone()
    }
}

#[async_trait::async_trait]
impl CodeHost for FakeHost {
    fn authorize_url(&self, redirect_uri: &str, state: &str, challenge: &str) -> String {
        self.asked.lock().unwrap().push([redirect_uri, state, challenge].map(str::to_owned));
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

/// The browser that began comes back, with this code or error.
async fn end(identity: &Identity, begun: &LoginBegun, said: Result<&str, &str>) -> Result<LoginEnded, IdentityError> {
    let texts = (begun.state.reveal(), begun.browser.reveal());
    identity.login_end(&anyone(), texts, said, Some("Firefox")).await
}

fn is_unknown(ended: &Result<LoginEnded, IdentityError>) -> bool {
    matches!(ended, Err(error @ IdentityError::UnknownLogin) if error.code() == &Code::BAD_REQUEST)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_login_founds_the_organization_that_is_called_like_it() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    for first in [true, false] {
        let begun = identity.login_begin("https://app.example.org/signed-in?next=%2Fapps").await.unwrap();
        assert_eq!(kit.db_counts().await[4], i64::from(!first), "beginning is no event");
        let ended = end(&identity, &begun, Ok("ada")).await.unwrap();
        assert_eq!(ended.redirect, "https://app.example.org/signed-in?next=%2Fapps");
        let session = ended.outcome.unwrap();
        assert_eq!((session.subject.as_str(), session.expires_at), ("1000-ada", kit.now().plus_seconds(2_592_000)));
        let told = kit.audited().await;
        let [row] = told.as_slice() else { panic!("one row is expected: {told:?}") };
        let data = json!({ "user": session.user_id, "provider": "codehost", "first": first });
        assert_eq!((row.event.as_str(), &row.data), ("session.start", &data));
    }
    assert_eq!(kit.db_rows("SELECT slug FROM orgs.orgs").await, [json!({ "slug": "ada" })]);
    let kept = "SELECT DISTINCT user_agent FROM identity.sessions";
    assert_eq!(kit.db_rows(kept).await, [json!({ "user_agent": "Firefox" })]);
    assert_eq!(kit.db_counts().await, [1, 2, 1, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_to_an_address_that_is_not_allowed() {
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
    assert_eq!((host.asked().len(), kit.database.number(LOGINS).await), (0, 0));
    for redirect in [REDIRECT, "http://localhost:3000/any/where"] {
        identity.login_begin(redirect).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_code_host_is_given_a_challenge_and_later_what_answers_it() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let mut begun = Vec::new();
    for _ in 0..2 {
        begun.push(identity.login_begin(REDIRECT).await.unwrap());
    }
    // In the other order: each exchange has its own verifier.
    for login in begun.iter().rev() {
        end(&identity, login, Ok("ada")).await.unwrap().outcome.unwrap();
    }
    let (asked, mut exchanged) = (host.asked(), host.exchanged());
    exchanged.reverse();
    for ((login, [to, state, challenge]), [code, redirect_uri, verifier]) in begun.iter().zip(&asked).zip(&exchanged) {
        assert_eq!(login.url, format!("https://codehost.example/authorize?state={state}"));
        assert_eq!((state.as_str(), login.seconds), (login.state.reveal(), 600));
        assert_eq!((to.as_str(), redirect_uri.as_str(), code.as_str()), (CALLBACK, CALLBACK, "ada"));
        // RFC 7636, section 4: 43 to 128 unreserved characters, and S256 of them.
        assert!((43..=128).contains(&verifier.len()), "{verifier}");
        assert!(verifier.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)), "{verifier}");
        let hash = ring::digest::digest(&ring::digest::SHA256, verifier.as_bytes());
        assert_eq!(*challenge, URL_SAFE_NO_PAD.encode(hash));
        assert_ne!(verifier, challenge);
    }
    assert!(asked[0] != asked[1] && exchanged[0] != exchanged[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_state_nor_cookie_nor_verifier_is_stored() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let begun = identity.login_begin(REDIRECT).await.unwrap();
    assert_ne!(begun.state, begun.browser);
    assert!(!format!("{begun:?}").contains(begun.browser.reveal()));
    let stored = Value::from(kit.db_rows("SELECT t::text FROM identity.logins t").await).to_string();
    assert!(stored.contains(REDIRECT), "{stored}");
    end(&identity, &begun, Ok("ada")).await.unwrap().outcome.unwrap();
    let verifier = host.exchanged()[0][2].clone();
    for secret in [begun.state.reveal(), begun.browser.reveal(), &verifier] {
        // Nor as bytes, which are shown in hex.
        let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!stored.contains(secret) && !stored.contains(&hex), "{stored}");
        let told = Value::from(kit.db_rows("SELECT a::text FROM store.audit a").await).to_string();
        assert!(!told.contains(secret), "{told}");
    }
    assert_eq!(kit.database.number(LOGINS).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_ends_once() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let begun = identity.login_begin(REDIRECT).await.unwrap();
    end(&identity, &begun, Ok("ada")).await.unwrap().outcome.unwrap();
    for said in [Ok("ada"), Ok("eve"), Err("access_denied")] {
        assert!(is_unknown(&end(&identity, &begun, said).await), "{said:?}");
    }
    // Nor was the code host asked again.
    assert_eq!((host.exchanged().len(), kit.db_counts().await), (1, [1; 5]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_ends_within_ten_minutes() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for (seconds, known) in [(599, true), (600, false), (601, false)] {
        let begun = identity.login_begin(REDIRECT).await.unwrap();
        kit.advance(seconds);
        let ended = end(&identity, &begun, Ok("ada")).await;
        assert_eq!((ended.is_ok(), is_unknown(&ended)), (known, !known), "{seconds}");
    }
    assert_eq!(host.exchanged().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_ends_in_the_browser_that_began_it() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    let (mine, theirs) = (identity.login_begin(REDIRECT).await.unwrap(), identity.login_begin(REDIRECT).await.unwrap());
    let made_up = Token::mint(TokenKind::Login, kit.store.world());
    let session = Token::mint(TokenKind::Session, kit.store.world());
    let (state, browser) = (mine.state.reveal(), mine.browser.reveal());
    for texts in [
        // A link of somebody else's in my browser, mine in theirs, and none of anybody's.
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
        let ended = identity.login_end(&anyone(), texts, Ok("ada"), None).await;
        assert!(is_unknown(&ended), "{texts:?}: {ended:?}");
    }
    assert_eq!((host.exchanged().len(), kit.db_counts().await), (0, [0; 5]));
    for (begun, login) in [(mine, "ada"), (theirs, "eve")] {
        let session = end(&identity, &begun, Ok(login)).await.unwrap().outcome.unwrap();
        assert_eq!(session.subject, format!("1000-{login}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_ends_at_once_one_signs_in() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for round in 1..=5 {
        let begun = identity.login_begin(REDIRECT).await.unwrap();
        let ends = join_all((0..20).map(|_| end(&identity, &begun, Ok("ada")))).await;
        let (ended, refused): (Vec<_>, Vec<_>) = ends.into_iter().partition(Result::is_ok);
        let [Ok(LoginEnded { outcome: Ok(_), .. })] = ended.as_slice() else { panic!("one is expected: {ended:?}") };
        assert!(refused.iter().all(is_unknown), "{refused:?}");
        assert_eq!(host.exchanged().len(), round);
        let sessions = i64::try_from(round).unwrap();
        assert_eq!(kit.db_counts().await, [1, sessions, 1, 1, sessions]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_at_the_code_host_is_the_outcome_and_uses_the_login_up() {
    let kit = Kit::start().await;
    let (identity, host) = with_host(&kit);
    for (said, code, asked) in [
        (Err("access_denied"), &IdentityError::ACCESS_DENIED, 0),
        (Err("server_error"), &IdentityError::CODEHOST_UNAVAILABLE, 0),
        (Err(""), &IdentityError::CODEHOST_UNAVAILABLE, 0),
        (Ok("refused"), &IdentityError::ACCESS_DENIED, 1),
        (Ok("away"), &IdentityError::CODEHOST_UNAVAILABLE, 2),
    ] {
        let begun = identity.login_begin(REDIRECT).await.unwrap();
        let ended = end(&identity, &begun, said).await.unwrap();
        assert_eq!(ended.redirect, REDIRECT);
        let failed = ended.outcome.unwrap_err();
        assert_eq!(failed.code(), code, "{said:?}");
        // The cause is for the log.
        let message = failed.to_string();
        assert!(!message.contains("connection refused") && !message.contains("server_error"), "{message}");
        assert_eq!(host.exchanged().len(), asked);
        assert!(is_unknown(&end(&identity, &begun, Ok("ada")).await), "{said:?}");
    }
    assert_eq!((kit.db_counts().await, kit.database.number(LOGINS).await), ([0; 5], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_that_nobody_ended_in_time_are_forgotten() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    for _ in 0..3 {
        identity.login_begin(REDIRECT).await.unwrap();
    }
    kit.advance(300);
    let begun = identity.login_begin(REDIRECT).await.unwrap();
    assert_eq!(kit.database.number(LOGINS).await, 4);
    kit.advance(300);
    identity.login_begin(REDIRECT).await.unwrap();
    identity.logins_forget().await.unwrap();
    assert_eq!(kit.database.number(LOGINS).await, 2);
    end(&identity, &begun, Ok("ada")).await.unwrap().outcome.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_code_host_nothing_begins_or_ends() {
    let kit = Kit::start().await;
    let (identity, _) = with_host(&kit);
    let begun = identity.login_begin(REDIRECT).await.unwrap();
    assert_eq!(kit.identity.login_begin(REDIRECT).await.unwrap_err().code(), &Code::INTERNAL);
    assert_eq!(end(&kit.identity, &begun, Ok("ada")).await.unwrap_err().code(), &Code::INTERNAL);
}
