//! Sign-ins while a provider fails, is slow, or sends what it must not send.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use sandbox::{IdentityProvider, Person};
use serde_json::Value;

use super::Platform;
use crate::support::eventually;

/// The faults of every provider, as the sign-in page of the sandbox names them.
const FAULTS: [&str; 9] = [
    "token: 500",
    "token: no response",
    "token: 50 MB",
    "token: a page",
    "token: other JSON",
    "user: 500",
    "user: no response",
    "user: a page",
    "error: server_error",
];
/// The faults of ID tokens.
const ID_TOKEN_FAULTS: [&str; 11] = [
    "ID token: missing",
    "ID token: malformed",
    "ID token: other issuer",
    "ID token: other audience",
    "ID token: expired",
    "ID token: other nonce",
    "ID token: no nonce",
    "ID token: other subject",
    "ID token: invalid signature",
    "ID token: unknown key",
    "ID token: not signed",
];
/// The longest time until a page (runtime.md, "App user auth").
const DEADLINE: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_providers_are_pages() {
    let Some(platform) = Platform::with_club().await else { return };
    let cases = IdentityProvider::ALL.into_iter().flat_map(|provider| {
        let id_token = if provider == IdentityProvider::CodeHost { &[][..] } else { &ID_TOKEN_FAULTS };
        FAULTS.iter().chain(id_token).map(move |fault| (provider.as_str(), *fault))
    });
    let failed = cases.map(async |(provider, fault)| {
        let visitor = platform.visitor("club");
        // On a busy machine, a page may come late. Then the sign-in is repeated.
        let mut shown = None;
        for _ in 0..3 {
            let authorize = visitor.begin(provider, "/members").await;
            let callback = visitor.submit(&authorize, &[("person", "ada"), ("fault", fault)]).await;
            shown = tokio::time::timeout(DEADLINE, visitor.error_page(&callback)).await.ok();
            if shown.is_some() {
                break;
            }
        }
        let (status, page) = shown.unwrap();
        assert_eq!(status, 502, "{provider} {fault}: {page}");
        assert!(page.contains("next=%2Fmembers"), "{provider} {fault}: {page}");
        assert_eq!(visitor.user().await, Value::Null, "{provider} {fault}");
        // The next attempt succeeds.
        visitor.sign_in(provider, "ada").await;
    });
    // A project has a limit on concurrent sign-ins.
    stream::iter(failed).buffer_unordered(8).collect::<Vec<()>>().await;

    let visitor = platform.visitor("club");
    for (fault, status) in [("code: expired", 400), ("", 403)] {
        let authorize = visitor.begin("webaccount", "/members").await;
        let fields = if fault.is_empty() { vec![] } else { vec![("person", "ada"), ("fault", fault)] };
        let callback = visitor.submit(&authorize, &fields).await;
        assert_eq!(visitor.error_page(&callback).await.0, status, "{fault}");
    }
    // A slow provider only delays the sign-in, and a new signing key is fetched.
    let authorize = visitor.begin("webaccount", "/members").await;
    let callback = visitor.submit(&authorize, &[("person", "ada"), ("fault", "token: slow")]).await;
    assert_eq!(visitor.get(&callback).await.status(), 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_providers_are_not_trusted() {
    let Some(platform) = Platform::with_club().await else { return };
    let sign_in = async |provider: IdentityProvider, person: Person| {
        let key = person.key.clone();
        platform.providers.add_person(provider, person);
        let visitor = platform.visitor("club");
        let callback = visitor.approve(provider.as_str(), &key).await;
        let response = visitor.get(&callback).await;
        (response.status().as_u16(), visitor.user().await)
    };
    let new = |key: &str, subject: &str| Person::new(key, subject);
    // Texts are shown as they are, and the worker escapes them. Control characters are not passed on.
    let script = new("script", "900").named("<script>alert(1)</script>\u{0}\u{202e}\r\n").verified("x@mail.example");
    let (status, user) = sign_in(IdentityProvider::WebAccount, script).await;
    assert_eq!(status, 303);
    assert!(!user["name"].as_str().unwrap_or_default().contains(['\u{0}', '\r', '\n']), "{user}");
    let long = new("long", "901").named(&"x".repeat(100_000)).verified(&format!("{}@mail.example", "x".repeat(9000)));
    let (status, user) = sign_in(IdentityProvider::WebAccount, long).await;
    assert_eq!(status, 303);
    assert!(user.to_string().len() < 10_000);
    // A subject must be a text without control characters, and not too long.
    for subject in [String::new(), "x".repeat(10_000), "a\u{0}b".to_owned()] {
        let person = new("subject", &subject).named("Eve");
        assert_eq!(sign_in(IdentityProvider::WebAccount, person.clone()).await.0, 502, "{subject:?}");
        assert_eq!(sign_in(IdentityProvider::CodeHost, person).await.0, 502, "{subject:?}");
    }
    // A person is identified by the id, not by the login.
    let host = IdentityProvider::CodeHost;
    let person = |key: &str, id: &str| new(key, id).named("Linus");
    let (first, renamed, other) = (
        sign_in(host, person("linus", "77")).await,
        sign_in(host, person("torvalds", "77")).await,
        sign_in(host, person("linus", "78")).await,
    );
    assert_eq!(first.1["id"], renamed.1["id"]);
    assert_ne!(first.1["id"], other.1["id"]);
    // A replaced key of a provider is fetched.
    platform.visitor("club").sign_in("messenger", "ada").await;
    platform.providers.renew_key(IdentityProvider::Messenger);
    eventually("the new key is fetched", async || {
        let visitor = platform.visitor("club");
        let callback = visitor.approve("messenger", "ada").await;
        (visitor.get(&callback).await.status() == 303).then_some(())
    })
    .await;
}
