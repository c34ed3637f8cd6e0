//! The sign-in page and the errors.

use protocol::AuthBrand;
use reqwest::Method;
use sandbox::IdentityProvider::{self, Messenger};

use super::{HOST, Rig};

#[tokio::test(flavor = "multi_thread")]
async fn page_shows_the_brand_and_the_providers_in_the_language_of_the_visitor() {
    let Some(rig) = Rig::start().await else { return };
    let visitor = rig.visitor().await;
    for (accepted, language, texts) in [
        ("en-GB", "en", ["Sign in to app.localhost", "Continue with your code host", "Continue with your messenger"]),
        ("de;q=0.9, en;q=0.1", "de", ["Bei app.localhost anmelden", "Weiter mit Ihrem Code-Host", "Ihrem Messenger"]),
        ("fr", "fr", ["Se connecter à app.localhost", "Continuer avec votre compte web", "votre messagerie"]),
        ("ja", "ja", ["app.localhost にログイン", "コードホストで続ける", "メッセンジャーで続ける"]),
    ] {
        let page = visitor.get_with(HOST, "/__svc/auth/login?next=/a%22b", &[("accept-language", accepted)]).await;
        assert_eq!((page.status, page.header("content-language")), (200, language));
        for text in texts {
            assert!(page.body.contains(text), "{text}: {}", page.body);
        }
        assert!(page.body.contains("href=\"/__svc/auth/login/codehost?next=%2Fa%22b\""), "{}", page.body);
        assert!(!page.body.contains("<script"), "{}", page.body);
        assert_eq!(page.header("cache-control"), "no-store");
        assert_eq!(page.header("referrer-policy"), "no-referrer");
        assert_eq!(page.header("x-content-type-options"), "nosniff");
        let policy = page.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; style-src 'nonce-") && policy.contains("frame-ancestors 'none'")
        );
    }
    let mut auth = rig.auth(&IdentityProvider::ALL);
    let (color, logo_url) = (Some("#ffee00".to_owned()), Some("https://img.example/logo.png".to_owned()));
    auth.brand = AuthBrand { name: Some("Shop <b>".to_owned()), color, logo_url };
    rig.set_auth(&auth);
    let page = visitor.sees(HOST, "/__svc/auth/login", 200, "Sign in to Shop &lt;b>").await;
    assert!(page.header("content-security-policy").contains("; img-src https://img.example; "));
    assert!(page.body.contains("background:#ffee00;color:#000000") && page.body.contains("alt=\"\""), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_provider_continues_directly_and_none_is_explained() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    rig.apply_auth(&rig.auth(&[Messenger])).await;
    let begun = browser.get("/__svc/auth/login?next=/members.html").await;
    assert!(begun.status == 303 && begun.header("location").starts_with(rig.identity.url(Messenger)));
    let path = browser.choose(begun.header("location"), "ada").await;
    assert_eq!(browser.get(&path).await.header("location"), "/members.html");
    assert_eq!(browser.get("/__svc/auth/login/codehost").await.status, 404);
    rig.apply_auth(&rig.auth(&[])).await;
    let page = browser.get("/__svc/auth/login").await;
    assert!(page.status == 404 && page.body.contains("Sign-in is not available yet"), "{}", page.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_and_methods_are_those_of_the_specification() {
    let Some(rig) = Rig::start().await else { return };
    let mut browser = rig.browser().await;
    for (method, path, status, allowed) in [
        (Method::HEAD, "/__svc/auth/login", 200, ""),
        (Method::POST, "/__svc/auth/login", 405, "GET, HEAD"),
        (Method::DELETE, "/__svc/auth/session", 405, "GET, HEAD"),
        (Method::POST, "/__svc/auth/login/codehost", 405, "GET"),
        (Method::HEAD, "/__svc/auth/callback/codehost", 405, "GET"),
        (Method::POST, "/__svc/auth/callback/codehost", 405, "GET"),
        (Method::PUT, "/__svc/auth/logout", 405, "POST"),
        (Method::GET, "/__svc/auth/", 404, ""),
        (Method::GET, "/__svc/auth/login/", 404, ""),
        (Method::GET, "/__svc/auth/login/unknown", 404, ""),
        (Method::GET, "/__svc/auth/login/codehost/", 404, ""),
        (Method::GET, "/__svc/auth/callback/CODEHOST", 404, ""),
        (Method::GET, "/__svc/auth/sessions", 404, ""),
        (Method::GET, "/__svc/auth/..%2flogin", 404, ""),
    ] {
        let response = browser.send(method.clone(), path, &[]).await;
        assert_eq!((response.status, response.header("allow")), (status, allowed), "{method} {path}");
        assert_eq!(response.header("cache-control"), "no-store", "{method} {path}");
    }
    // These are not paths of the sign-in.
    for path in ["/__svc/auth", "/__svc/Auth/login", "/__svc/%61uth/login"] {
        let response = browser.get(path).await;
        assert_eq!((response.status, response.header("content-security-policy")), (404, ""), "{path}");
    }
    let session = browser.get("/__svc/auth/session").await;
    assert_eq!((session.header("content-type"), session.body.as_str()), ("application/json", r#"{"user":null}"#));
}
