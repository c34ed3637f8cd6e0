//! Flows with the providers of the sandbox.

use std::collections::BTreeSet;

use protocol::AuthProvider;
use reqwest::Method;
use reqwest::header::LOCATION;
use sandbox::{IdTokenFault, IdentityEndpoint, IdentityFault, IdentityProvider, Person, ResponseFault};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::browser::Browser;
use super::{HOST, PROJECT, Rig, clients, user_id};
use crate::database::kit::{eventually, number};
use crate::running::until;
use crate::timeout::TIMEOUT;

use IdentityProvider::{CodeHost, Messenger, WebAccount};

#[tokio::test(flavor = "multi_thread")]
async fn each_provider_signs_a_visitor_in() {
    let Some(rig) = Rig::start().await else { return };
    for (provider, name) in [(CodeHost, "Ada Lovelace"), (WebAccount, "Ada Lovelace"), (Messenger, "Ada")] {
        let mut browser = rig.browser().await;
        assert_eq!(browser.user().await, Value::Null);
        let response = browser.sign_in(provider, "ada", "/members.html?a=b").await;
        assert_eq!(
            (response.status, response.header(LOCATION.as_str())),
            (303, "/members.html?a=b"),
            "{}",
            response.body
        );
        let user = browser.user().await;
        assert_eq!((&user["name"], &user["provider"]), (&json!(name), &json!(provider.as_str())), "{user}");
        assert_eq!(user["email"], "ada@mail.example");
        assert!(
            user["id"].as_str().unwrap().starts_with("sub_")
                && user["avatarUrl"].as_str().unwrap().starts_with("https://")
        );
        assert_eq!(browser.cookies.len(), 1, "the cookie of the flow is removed: {:?}", browser.cookies);
        let response = browser.log_out().await;
        assert_eq!((response.status, response.header(LOCATION.as_str())), (303, "/"));
        assert_eq!((browser.user().await, browser.cookies.len()), (Value::Null, 0));
    }
    let log = rig.node.log();
    for secret in ["ada@mail", "Ada Lovelace", &rig.clients[0].1.client_secret] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tabs_are_independent_and_callbacks_cannot_be_repeated() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    let (one, two) = (browser.begin(CodeHost, "/one").await, browser.begin(WebAccount, "/two").await);
    let (one, two) = (browser.choose(&one, "ada").await, browser.choose(&two, "grace").await);
    assert_eq!(browser.get(&two).await.header(LOCATION.as_str()), "/two");
    let cookies = browser.cookies.clone();
    assert_eq!(browser.get(&one).await.header(LOCATION.as_str()), "/one");
    assert_eq!(browser.user().await["provider"], "codehost");
    // The back button, and a replay with the cookies of the flow.
    assert_eq!(browser.get(&one).await.status, 400);
    assert_eq!(browser.user().await["provider"], "codehost");
    let mut replay = rig.browser().await;
    replay.cookies = cookies;
    assert_eq!((replay.get(&one).await.status, replay.get(&two).await.status), (400, 400));
    // The earlier session of the browser has ended.
    assert_eq!(replay.user().await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_is_bound_to_browser_provider_and_host() {
    let Some(rig) = Rig::start().await else { return };
    let (mut attacker, mut victim) = (rig.browser().await, rig.browser().await);
    let address = attacker.begin(CodeHost, "/").await;
    let path = attacker.choose(&address, "grace").await;
    // Login CSRF: the victim opens the address with the attacker's code.
    assert_eq!(victim.get(&path).await.status, 400);
    let own = victim.begin(CodeHost, "/").await;
    let state = |path: &str| path.split("state=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    assert_eq!(victim.get(&path).await.status, 400);
    assert_eq!(victim.user().await, Value::Null);
    // The code of another flow fails at the provider, because the verifier differs.
    let swapped = path.replace(&state(&path), &state(&own));
    assert_eq!(victim.get(&swapped).await.status, 400);
    let address = attacker.begin(CodeHost, "/").await;
    let path = attacker.choose(&address, "grace").await;
    assert_eq!(attacker.get(&path.replace("callback/codehost", "callback/webaccount")).await.status, 400);
    for malformed in
        ["", "?", "?state=", "?state=x&code=y", "?code=y", "?state=a&state=b", "?%ff", "?error=access_denied"]
    {
        let response = attacker.get(&format!("/__svc/auth/callback/codehost{malformed}")).await;
        assert_eq!(response.status, 400, "{malformed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_address_is_that_of_the_host_under_the_site_url() {
    const CUSTOM: &str = "www.example.org";
    let Some(mut rig) = Rig::start().await else { return };
    rig.core.set_hostnames(PROJECT, &[HOST, CUSTOM]);
    rig.visitor().await.sees(CUSTOM, "/", 200, "home").await;
    for (site_url, host) in [("http://{hostname}:8088", HOST), ("https://{hostname}:8443", CUSTOM)] {
        rig.core.set_site_url(site_url);
        rig.clients = clients(&rig.identity, &site_url.replace("{hostname}", host));
        rig.apply_auth(&rig.auth(&IdentityProvider::ALL)).await;
        for (begin, end) in [("", ":8088"), (":8443", ""), (":9999", ":9999")] {
            let mut browser = Browser::new(rig.visitor().await, &format!("{host}{begin}"));
            let address = browser.begin(CodeHost, "/members").await;
            // The sandbox accepts only the registered redirect address.
            let path = Browser::new(rig.visitor().await, host).choose(&address, "ada").await;
            let mut returned = Browser::new(rig.visitor().await, &format!("{host}{end}"));
            returned.cookies = browser.cookies;
            let response = returned.get(&path).await;
            assert_eq!(
                (response.status, response.header(LOCATION.as_str())),
                (303, "/members"),
                "{host} {begin} {end}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_stays_on_the_host() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    for (next, expected) in [
        ("/members.html", "/members.html"),
        ("/a//b?c=d&e=%2F#f", "/a//b?c=d&e=%2F#f"),
        ("", "/"),
        ("members", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/\r\nset-cookie: a=b", "/"),
        ("/\t/evil.example", "/"),
        ("/\u{e9}", "/"),
    ] {
        let response = browser.sign_in(CodeHost, "ada", next).await;
        assert_eq!((response.status, response.header(LOCATION.as_str())), (303, expected), "{next}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_of_a_provider_are_pages_that_offer_another_attempt() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    let (expired, denied, failed) = (400, 403, 502);
    let id_token = |fault| IdentityFault::IdToken(fault);
    let response = |endpoint, fault| IdentityFault::Response(endpoint, fault);
    use IdentityEndpoint::{Keys, Token, User};
    for (provider, fault, status) in [
        (WebAccount, IdentityFault::Authorization("access_denied"), denied),
        (CodeHost, IdentityFault::Authorization("server_error"), failed),
        (CodeHost, IdentityFault::ExpiredCode, expired),
        (WebAccount, IdentityFault::ExpiredCode, expired),
        (CodeHost, response(Token, ResponseFault::Status(500)), failed),
        (CodeHost, response(Token, ResponseFault::Html), failed),
        (CodeHost, response(Token, ResponseFault::Large), failed),
        (CodeHost, response(Token, ResponseFault::Redirect), failed),
        (CodeHost, response(Token, ResponseFault::Close), failed),
        (CodeHost, response(Token, ResponseFault::Json(json!({ "access_token": 1 }))), failed),
        (CodeHost, response(User, ResponseFault::Status(500)), failed),
        (CodeHost, response(User, ResponseFault::Json(json!({ "login": "ada" }))), failed),
        (WebAccount, response(User, ResponseFault::Html), failed),
        (WebAccount, response(Token, ResponseFault::Json(json!({ "access_token": "a", "id_token": "a.b.c" }))), failed),
        (Messenger, id_token(IdTokenFault::Missing), failed),
        (WebAccount, id_token(IdTokenFault::Malformed), failed),
        (WebAccount, id_token(IdTokenFault::Issuer), failed),
        (WebAccount, id_token(IdTokenFault::Audience), failed),
        (Messenger, id_token(IdTokenFault::Expired), failed),
        (WebAccount, id_token(IdTokenFault::Nonce), failed),
        (WebAccount, id_token(IdTokenFault::NoNonce), failed),
        (Messenger, id_token(IdTokenFault::Subject), failed),
        (WebAccount, id_token(IdTokenFault::Signature), failed),
        (Messenger, id_token(IdTokenFault::Signature), failed),
        (WebAccount, id_token(IdTokenFault::Unsigned), failed),
        (Messenger, id_token(IdTokenFault::UnknownKey), failed),
    ] {
        rig.identity.inject(provider, Some(fault.clone()));
        let response = browser.sign_in(provider, "ada", "/members.html").await;
        assert_eq!(response.status, status, "{fault:?}: {}", response.body);
        assert!(response.body.contains("/__svc/auth/login?next=%2Fmembers.html"), "{fault:?}: {}", response.body);
        assert!(!response.body.contains("text of the provider") && browser.session().is_none(), "{fault:?}");
        rig.identity.inject(provider, None);
    }
    // A request that the provider rejects with 429 is repeated once.
    let token_requests =
        || rig.identity.requests(CodeHost).iter().filter(|request| request.ends_with("/token")).count();
    let before = token_requests();
    rig.identity.inject(CodeHost, Some(response(Token, ResponseFault::Status(429))));
    assert_eq!(browser.sign_in(CodeHost, "ada", "/").await.status, failed);
    assert_eq!(token_requests(), before + 2);
    rig.identity.inject(WebAccount, Some(response(Keys, ResponseFault::Status(500))));
    // The keys are cached.
    assert_eq!(browser.sign_in(WebAccount, "ada", "/").await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_provider_ends_in_time() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    rig.identity.inject(CodeHost, Some(IdentityFault::Response(IdentityEndpoint::User, ResponseFault::Hang)));
    let address = browser.begin(CodeHost, "/").await;
    let path = browser.choose(&address, "ada").await;
    // The provider never responds.
    let response = timeout(TIMEOUT, browser.get(&path)).await.unwrap();
    assert_eq!(response.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn identities_are_linked_only_by_verified_addresses() {
    let Some(rig) = Rig::start().await else { return };
    let sign_in = async |provider, person: &str| {
        let mut browser = rig.browser().await;
        let response = browser.sign_in(provider, person, "/").await;
        assert_eq!(response.status, 303, "{}", response.body);
        user_id(&mut browser).await
    };
    let ada = sign_in(WebAccount, "ada").await;
    assert_eq!(sign_in(Messenger, "ada").await, ada);
    let separate = [
        sign_in(CodeHost, "ada").await,
        sign_in(WebAccount, "mallory").await,
        sign_in(Messenger, "mallory").await,
        sign_in(WebAccount, "nameless").await,
    ];
    assert!(!separate.contains(&ada) && BTreeSet::from(separate).len() == 4);
    // The case of the domain does not matter. The host of the address decides about that of the local part.
    let linked = sign_in(WebAccount, "grace").await;
    assert_eq!(sign_in(Messenger, "grace").await, linked);
    rig.identity.add_person(Messenger, Person::new("other-grace", "3").verified("Grace@mail.example"));
    assert_ne!(sign_in(Messenger, "other-grace").await, linked);
    // A person is identified by the id and not by the login.
    let grace = sign_in(CodeHost, "grace").await;
    assert_eq!(sign_in(CodeHost, "grace-renamed").await, grace);
    assert_ne!(sign_in(CodeHost, "grace-reused").await, grace);
    // The provider gave the address to another person.
    rig.identity.add_person(WebAccount, Person::new("ada-2", "2").verified("ada@MAIL.example"));
    let next = sign_in(WebAccount, "ada-2").await;
    assert_ne!(next, ada);
    // Now two users have the address, so it identifies neither.
    rig.identity.add_person(Messenger, Person::new("ada-3", "4").verified("ada@mail.example"));
    let third = sign_in(Messenger, "ada-3").await;
    assert!(third != ada && third != next);
    assert_eq!([sign_in(WebAccount, "ada").await, sign_in(Messenger, "ada").await], [ada.clone(), ada]);
    assert_eq!([sign_in(WebAccount, "ada-2").await, sign_in(Messenger, "ada-3").await], [next, third]);
}

#[tokio::test(flavor = "multi_thread")]
async fn user_shows_only_addresses_that_an_openid_provider_calls_verified() {
    let Some(rig) = Rig::start().await else { return };
    for (provider, person, email) in [
        (WebAccount, "ada", json!("ada@mail.example")),
        (WebAccount, "mallory", Value::Null),
        (Messenger, "mallory", Value::Null),
    ] {
        let mut browser = rig.browser().await;
        assert_eq!(browser.sign_in(provider, person, "/").await.status, 303);
        assert_eq!(browser.user().await["email"], email, "{provider:?} {person}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn account_of_a_later_registration_is_not_overwritten() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    assert_eq!(browser.sign_in(CodeHost, "ada", "/").await.status, 303);
    // Another node that knows the later registration signed the person in.
    let admin = rig.superuser(&rig.name(super::PROJECT)).await;
    let later = "UPDATE svc_auth.identities SET registration = 5";
    assert_eq!(admin.execute(later, &[]).await.unwrap(), 1);
    assert_eq!(browser.sign_in(CodeHost, "ada", "/").await.status, 403);
    let registration = "SELECT registration FROM svc_auth.identities";
    assert_eq!(admin.query_one(registration, &[]).await.unwrap().get::<_, i64>(0), 5);
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.users").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_logged_once_and_errors_in_requests_not_at_all() {
    let Some(rig) = Rig::start().await else { return };
    let mut visitor = rig.browser().await;
    let address = visitor.begin(CodeHost, "/").await;
    let state = address.split("state=").nth(1).unwrap().split('&').next().unwrap();
    let cookies = visitor.cookies.clone();
    for _ in 0..3 {
        visitor.cookies = cookies.clone();
        let response = visitor.get(&format!("/__svc/auth/callback/codehost?state={state}&error=x")).await;
        assert_eq!(response.status, 502, "{}", response.body);
    }
    let logged = || rig.node.log().matches("failed to sign in an app user").count();
    for provider in [CodeHost, CodeHost, WebAccount] {
        let fault = IdentityFault::Response(IdentityEndpoint::Token, ResponseFault::Status(500));
        rig.identity.inject(provider, Some(fault));
        assert_eq!(visitor.sign_in(provider, "ada", "/").await.status, 502);
    }
    // The log is written after the response. The line of the last failure follows all others.
    let is_last = |line: &str| line.contains("failed to sign in an app user") && line.contains("webaccount");
    until("the last failure", || rig.node.log().lines().any(is_last)).await;
    assert_eq!(logged(), 2, "{}", rig.node.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn only_navigations_begin_flows() {
    const MODE: &str = "sec-fetch-mode";
    const DEST: &str = "sec-fetch-dest";
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    let purpose = |value| [(MODE, "navigate"), (DEST, "document"), ("sec-purpose", value)];
    for (headers, status) in [
        (&[(MODE, "cors")][..], 400),
        (&[(MODE, "no-cors"), (DEST, "image")], 400),
        (&[(MODE, "websocket")], 400),
        (&[(MODE, "navigate"), (DEST, "iframe")], 400),
        (&[(MODE, "navigate"), (DEST, "embed")], 400),
        (&[(MODE, "same-origin"), (DEST, "script")], 400),
        (&[(DEST, "empty")], 400),
        (&purpose("prefetch"), 503),
        (&purpose("prefetch;prerender"), 503),
        (&[(MODE, "no-cors"), (DEST, "empty"), ("sec-purpose", "prefetch")], 503),
        // A service worker fetches a navigation again.
        (&[(MODE, "same-origin")], 303),
        (&[(MODE, "same-origin"), (DEST, "empty")], 303),
        (&[(MODE, "same-origin"), (DEST, "document")], 303),
        (&[(MODE, "navigate")], 303),
        (&[(MODE, "navigate"), (DEST, "document")], 303),
        (&[], 303),
    ] {
        browser.cookies.clear();
        let response = browser.send(Method::GET, "/__svc/auth/login/codehost", headers).await;
        assert_eq!((response.status, browser.cookies.len()), (status, usize::from(status == 303)), "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_without_keys_is_checked_except_for_the_signature() {
    let settings = [("SVC_NODE_AUTH_MESSENGER_NAME", "Pigeon Post"), ("SVC_NODE_AUTH_CODEHOST_NAME", "Forge & Co")];
    let without = ["SVC_NODE_AUTH_MESSENGER_ISSUER", "SVC_NODE_AUTH_MESSENGER_JWKS_URL"];
    let Some(rig) = Rig::start_with(&settings, &without).await else { return };
    let page = rig.visitor().await.get(super::HOST, "/__svc/auth/login").await;
    for label in ["Continue with Pigeon Post", "Continue with Forge &amp; Co", "Continue with your web account"] {
        assert!(page.body.contains(label), "{label}: {}", page.body);
    }
    let mut browser = rig.browser().await;
    for (fault, status) in [
        (None, 303),
        (Some(IdTokenFault::Signature), 303),
        (Some(IdTokenFault::UnknownKey), 303),
        (Some(IdTokenFault::Audience), 502),
        (Some(IdTokenFault::Expired), 502),
        (Some(IdTokenFault::Nonce), 502),
        (Some(IdTokenFault::Subject), 502),
        (Some(IdTokenFault::Malformed), 502),
    ] {
        rig.identity.inject(Messenger, fault.map(IdentityFault::IdToken));
        let response = browser.sign_in(Messenger, "ada", "/").await;
        assert_eq!(response.status, status, "{fault:?}: {}", response.body);
        if status == 303 {
            assert_eq!(browser.user().await["provider"], "messenger", "{fault:?}");
            browser.log_out().await;
        } else {
            assert!(response.body.contains("Pigeon Post") && browser.session().is_none(), "{fault:?}");
        }
    }
    // A provider with keys is not affected.
    rig.identity.inject(WebAccount, Some(IdentityFault::IdToken(IdTokenFault::Signature)));
    assert_eq!(browser.sign_in(WebAccount, "ada", "/").await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_sign_ins_create_one_user() {
    let Some(rig) = Rig::start().await else { return };
    let mut callbacks = Vec::new();
    for number in 0..20 {
        let mut browser = rig.browser().await;
        let provider = if number % 2 == 0 { WebAccount } else { Messenger };
        let address = browser.begin(provider, "/").await;
        let path = browser.choose(&address, "ada").await;
        callbacks.push(async move {
            let mut response = browser.get(&path).await;
            // All browsers have one address. While too many of its sign-ins are in progress, they repeat the request.
            while response.status == 503 {
                response = browser.get(&path).await;
            }
            assert_eq!(response.status, 303, "{}", response.body);
            user_id(&mut browser).await
        });
    }
    let users: BTreeSet<String> = futures_util::future::join_all(callbacks).await.into_iter().collect();
    assert_eq!(users.len(), 1);
    let admin = rig.superuser(&rig.name(super::PROJECT)).await;
    let count = "SELECT (SELECT count(*) FROM svc_auth.users) * 100 + (SELECT count(*) FROM svc_auth.identities)";
    assert_eq!(admin.query_one(count, &[]).await.unwrap().get::<_, i64>(0), 102);
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_that_is_withdrawn_in_mid_flow_signs_nobody_in() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    let mut paths = Vec::new();
    for provider in [CodeHost, CodeHost, WebAccount] {
        let address = browser.begin(provider, "/").await;
        paths.push(browser.choose(&address, "ada").await);
    }
    // The provider was deleted and registered again.
    let mut auth = rig.auth(&IdentityProvider::ALL);
    let renew =
        |it: &mut AuthProvider| it.registration += i64::from(it.provider == protocol::AuthProviderKind::Codehost);
    auth.providers.iter_mut().for_each(renew);
    auth.provider_revision = 2;
    rig.apply_auth(&auth).await;
    assert_eq!(browser.get(&paths[0]).await.status, 403);
    rig.apply_auth(&rig.auth(&[WebAccount])).await;
    assert_eq!(browser.get(&paths[1]).await.status, 404);
    // Without app user auth, the paths are those of the site.
    rig.core.set_part(super::PROJECT, "auth", Value::Null);
    let visitor = rig.visitor().await;
    let is_off = async || visitor.get(super::HOST, "/__svc/auth/session").await.status == 404;
    eventually("the end of the sign-in", is_off).await;
    let response = browser.get(&paths[2]).await;
    assert_eq!((response.status, response.body.contains("Sign")), (404, false), "{}", response.body);
    assert_eq!(browser.send(Method::POST, "/__svc/auth/logout", &[]).await.status, 405);
}
