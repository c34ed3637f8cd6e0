//! The life of sessions.

use protocol::AuthBrand;
use reqwest::Method;
use sandbox::IdentityProvider::{CodeHost, WebAccount};
use serde_json::{Value, json};

use super::{HOST, PROJECT, Rig, user_id};
use crate::database::kit::{eventually, number};

#[tokio::test(flavor = "multi_thread")]
async fn cookies_are_those_of_the_specification() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(CodeHost, "ada", "/").await;
    let attributes = |cookies: &[String], name: &str| {
        let cookie = cookies.iter().find(|it| it.starts_with(name) && !it.contains("Max-Age=0")).unwrap();
        cookie.split_once("; ").unwrap().1.to_owned()
    };
    assert_eq!(attributes(&browser.set_cookies, "svc_auth="), "HttpOnly; SameSite=Lax; Path=/; Max-Age=2592000");
    assert_eq!(attributes(&browser.set_cookies, "svc_auth_flow_"), "HttpOnly; SameSite=Lax; Path=/; Max-Age=600");
    // A database contains only digests of tokens.
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    let token = browser.session().unwrap().1.split('.').next().unwrap().to_owned();
    let digest = "SELECT count(*) FROM svc_auth.sessions WHERE token = sha256($1::text::bytea)";
    assert_eq!(admin.query_one(digest, &[&token]).await.unwrap().get::<_, i64>(0), 1);

    rig.core.set_site_url("https://{hostname}");
    rig.clients = super::clients(&rig.identity, "https://app.localhost");
    let auth = rig.auth(&sandbox::IdentityProvider::ALL);
    rig.apply_auth(&auth).await;
    // The cookies of plain http have no effect over https.
    assert_eq!(browser.user().await, Value::Null);
    browser.set_cookies.clear();
    browser.sign_in(CodeHost, "ada", "/").await;
    let expected = "HttpOnly; SameSite=Lax; Secure; Path=/; Max-Age=2592000";
    assert_eq!(attributes(&browser.set_cookies, "__Host-svc_auth="), expected);
    assert!(browser.user().await["id"].is_string());
    // A sibling host can set only cookies without the prefix.
    let value = browser.cookies["__Host-svc_auth"].clone();
    browser.cookies.clear();
    browser.cookies.insert("svc_auth".to_owned(), value);
    assert_eq!(browser.user().await, Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_replaces_the_session_of_the_browser() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    // Session fixation: a cookie that the attacker chose is replaced.
    let fixed = format!("{}.1", "A".repeat(43));
    browser.cookies.insert("svc_auth".to_owned(), fixed.clone());
    browser.sign_in(CodeHost, "ada", "/").await;
    let first = browser.session().unwrap().1.clone();
    assert_ne!(first, fixed);
    browser.sign_in(CodeHost, "grace", "/").await;
    let mut old = rig.browser().await;
    old.cookies.insert("svc_auth".to_owned(), first);
    assert_eq!((old.user().await, old.cookies.len()), (Value::Null, 0));
    assert_eq!(browser.user().await["name"], "Grace Hopper");
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_is_a_post_of_the_own_site() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(CodeHost, "ada", "/").await;
    let get = browser.get("/__svc/auth/logout").await;
    assert_eq!((get.status, get.header("allow")), (405, "POST"));
    let foreign: [&[(&str, &str)]; 4] = [
        &[("origin", "http://evil.example")],
        &[("origin", "http://b.localhost"), ("sec-fetch-site", "same-site")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
    ];
    for headers in foreign {
        let response = browser.send(Method::POST, "/__svc/auth/logout", headers).await;
        assert_eq!(response.status, 403, "{headers:?}");
    }
    assert_eq!(browser.user().await["name"], "Ada Lovelace");
    let mut copy = rig.browser().await;
    copy.cookies = browser.cookies.clone();
    let own = [("origin", "http://app.localhost"), ("sec-fetch-site", "same-origin")];
    assert_eq!(browser.send(Method::POST, "/__svc/auth/logout", &own).await.status, 303);
    assert_eq!((copy.user().await, browser.user().await), (Value::Null, Value::Null));
    // Logging out again changes nothing.
    assert_eq!(browser.log_out().await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_slide_and_expire() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(CodeHost, "ada", "/").await;
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    let age = async |days: &str| {
        let age = format!("UPDATE svc_auth.sessions SET used_at = now() - interval '{days}'");
        assert_eq!(admin.execute(&age, &[]).await.unwrap(), 1);
    };
    let is_new = "SELECT count(*) FROM svc_auth.sessions WHERE used_at > now() - interval '1 minute'";
    age("23 hours").await;
    assert!(browser.user().await.is_object());
    assert_eq!(number(&admin, is_new).await, 0, "at most once a day");
    age("25 hours").await;
    assert!(browser.user().await.is_object());
    assert_eq!(number(&admin, is_new).await, 1);
    // The browser receives a cookie that is older than a day again.
    let (token, issued_at) = browser.cookies["svc_auth"].split_once('.').unwrap();
    let old = format!("{token}.{}", issued_at.parse::<u64>().unwrap() - 90_000);
    browser.cookies.insert("svc_auth".to_owned(), old.clone());
    assert!(browser.user().await.is_object());
    assert_ne!(browser.cookies["svc_auth"], old);
    age("29 days").await;
    assert!(browser.user().await.is_object());
    age("31 days").await;
    assert_eq!(browser.user().await, Value::Null);
    // A shorter lifetime also applies to existing sessions.
    browser.sign_in(CodeHost, "ada", "/").await;
    admin.execute("UPDATE svc_auth.sessions SET used_at = now() - interval '20 hours'", &[]).await.unwrap();
    let mut auth = rig.auth(&sandbox::IdentityProvider::ALL);
    auth.session_days = 1;
    rig.apply_auth(&auth).await;
    assert!(browser.user().await.is_object());
    assert_eq!(number(&admin, is_new).await, 1, "half of the lifetime");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_with_their_provider_and_their_grant() {
    let Some(rig) = Rig::start().await else { return };
    let (mut code_host, mut web_account) = (rig.browser().await, rig.browser().await);
    code_host.sign_in(CodeHost, "ada", "/").await;
    web_account.sign_in(WebAccount, "ada", "/").await;
    let users = [user_id(&mut code_host).await, user_id(&mut web_account).await];
    let admin = rig.superuser(&rig.name(PROJECT)).await;
    rig.apply_auth(&rig.auth(&[WebAccount])).await;
    assert_eq!(code_host.user().await, Value::Null);
    assert_eq!(user_id(&mut web_account).await, users[1]);
    // The identity is removed, and the user stays.
    let removed = async || number(&admin, "SELECT count(*) FROM svc_auth.identities").await == 1;
    eventually("the end of the identity", removed).await;
    let sessions = "SELECT count(*) FROM svc_auth.sessions";
    eventually("the end of the session", async || number(&admin, sessions).await == 1).await;
    assert_eq!(number(&admin, "SELECT count(*) FROM svc_auth.users").await, 2);

    // The provider is registered again: it signs in a new user.
    let mut auth = rig.auth(&sandbox::IdentityProvider::ALL);
    (auth.provider_revision, auth.providers[0].registration) = (2, 2);
    rig.apply_auth(&auth).await;
    code_host.sign_in(CodeHost, "ada", "/").await;
    assert_ne!(user_id(&mut code_host).await, users[0]);

    // Disabled, and enabled again: the users are the same.
    rig.core.set_part(PROJECT, "auth", Value::Null);
    let visitor = rig.visitor().await;
    eventually("the end", async || visitor.get(HOST, "/__svc/auth/session").await.status == 404).await;
    auth.grant = 2;
    rig.apply_auth(&auth).await;
    assert_eq!((code_host.user().await, web_account.user().await), (Value::Null, Value::Null));
    eventually("the end of all sessions", async || number(&admin, sessions).await == 0).await;
    web_account.sign_in(WebAccount, "ada", "/").await;
    assert_eq!(user_id(&mut web_account).await, users[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_survives_a_restart_of_the_node() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let id = user_id(&mut browser).await;
    let address = browser.begin(CodeHost, "/after").await;
    let path = browser.choose(&address, "grace").await;
    rig.restart_node();
    rig.applied(PROJECT).await;
    let mut restarted = rig.browser().await;
    restarted.cookies = browser.cookies;
    eventually("the sign-in", async || rig.visitor().await.get(HOST, "/__svc/auth/login").await.status == 200).await;
    assert_eq!(user_id(&mut restarted).await, id);
    assert_eq!(restarted.get(&path).await.header("location"), "/after");
    // The secrets are sealed on the disk.
    let secret = &rig.clients[0].1.client_secret;
    let found = std::process::Command::new("grep").args(["-r", "-l", secret]).arg(rig.dir.path()).output().unwrap();
    assert_eq!(String::from_utf8(found.stdout).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_site_asks_for_access_first() {
    let Some(rig) = Rig::start().await else { return };
    let access =
        json!({ "mode": "org", "password": null, "bypass": crate::control_plane::sha256(b"key"), "version": 1 });
    rig.core.protect(PROJECT, &[("assets/index.html", b"inside")], access);
    let visitor = rig.visitor().await;
    eventually("the policy", async || visitor.get(HOST, "/").await.status == 302).await;
    for path in ["/__svc/auth/login", "/__svc/auth/session", "/__svc/auth/callback/codehost?state=x&code=y"] {
        let response = visitor.get(HOST, path).await;
        assert!(response.status == 302 && response.header("location").contains("/access/authorize"), "{path}");
        let response = visitor.get_with(HOST, path, &[("svc-access-bypass", "key")]).await;
        assert_ne!(response.status, 302, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_database_is_a_page_that_asks_to_return() {
    let Some(mut rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let id = user_id(&mut browser).await;
    let address = browser.begin(CodeHost, "/").await;
    let path = browser.choose(&address, "grace").await;
    rig.change(PROJECT, |database| database.suspended = true);
    let visitor = rig.visitor().await;
    eventually("the suspension", async || visitor.get(HOST, "/__svc/auth/login").await.status == 503).await;
    for path in ["/__svc/auth/login/codehost", path.as_str(), "/__svc/auth/session"] {
        let response = browser.get(path).await;
        assert_eq!((response.status, response.header("retry-after").is_empty()), (503, false), "{path}");
    }
    assert_eq!(browser.log_out().await.status, 503);
    rig.change(PROJECT, |database| database.suspended = false);
    rig.applied(PROJECT).await;
    eventually("the end of it", async || visitor.get(HOST, "/__svc/auth/login").await.status == 200).await;
    assert_eq!(user_id(&mut browser).await, id);
    // The visitor repeats the request.
    assert_eq!(browser.get(&path).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn brand_does_not_end_sessions() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    browser.sign_in(WebAccount, "ada", "/").await;
    let mut auth = rig.auth(&sandbox::IdentityProvider::ALL);
    auth.brand = AuthBrand { color: Some("#ff0000".to_owned()), ..AuthBrand::default() };
    rig.apply_auth(&auth).await;
    assert!(browser.user().await.is_object());
}
