//! The allowed redirects after a sign-in.

use serde_json::Value;

use super::{Fixture, StartedSignIn, redirect_target};

#[tokio::test(flavor = "multi_thread")]
async fn redirect_keeps_its_path_and_query() {
    let fixture = Fixture::new().await;
    for (requested, expected) in [
        ("https://app.example.org/signed-in/deep?tab=2&x=%20", "https://app.example.org/signed-in/deep?tab=2&x=%20"),
        ("https://app.example.org/signed-in/@ada?to=a@b", "https://app.example.org/signed-in/@ada?to=a@b"),
        ("http://localhost:3000", "http://localhost:3000/"),
        ("HTTPS://APP.example.org/signed-in", ""),
    ] {
        let response = fixture.start(requested).await;
        if expected.is_empty() {
            response.expect_error(400, "bad_request");
            continue;
        }
        let started = StartedSignIn::of(&response);
        let path = fixture.authorize(&started).await;
        let response = fixture.callback(&path, Some(started.cookie())).await;
        let (url, params) = redirect_target(&response);
        assert_eq!(url, expected);
        assert!(params.contains_key("token"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disallowed_redirects_are_rejected() {
    let fixture = Fixture::new().await;
    for redirect in [
        "",
        "/signed-in",
        "//app.example.org/signed-in",
        "https:app.example.org/signed-in",
        "https:///app.example.org/signed-in",
        "javascript:alert(1)//app.example.org/signed-in",
        "data:text/html,x",
        "http://app.example.org/signed-in",
        "https://app.example.org",
        "https://app.example.org/",
        "https://app.example.org/signed-in-elsewhere",
        "https://app.example.org/signed-in.evil.org",
        "https://app.example.org/Signed-In",
        "https://app.example.org:444/signed-in",
        "https://app.example.org.evil.org/signed-in",
        "https://app.example.org@evil.org/signed-in",
        "https://user@app.example.org/signed-in",
        "https://user:word@app.example.org/signed-in",
        "https://@app.example.org/signed-in",
        "https://evil.org\\@app.example.org/signed-in",
        "https://app.example.org\\.evil.org/signed-in",
        "https:\\\\app.example.org\\signed-in",
        "https://app.example.org/signed-in/../other",
        "https://app.example.org/signed-in/%2e%2e/other",
        "https://app.example.org/signed-in/..%2fother",
        "https://app.example.org/signed-in/%5c..%5cother",
        "https://app.example.org/signed-in/%252e%252e/other",
        "https://app.example.org/signed-in#token=mine",
        "https://app.example.org/signed-in#",
        "https://evil.org/#https://app.example.org/signed-in",
        "https://evil.org?https://app.example.org/signed-in",
        " https://app.example.org/signed-in",
        "https://app.example.org/signed-in\n",
        "https://app.example.org/signed-in\r\nSet-Cookie: a=b",
        "https://app.example.org/signed-in\t",
        "https://app.example.org/signed-in/\u{0}",
        "https://app.example.org./signed-in",
        "https://аpp.example.org/signed-in",
        "http://localhost:3001/",
        "http://localhost/",
        "http://127.0.0.1:3000/",
        "http://localhost:3000.evil.org/",
        "http://localhost:3000@evil.org/",
    ] {
        let response = fixture.start(redirect).await;
        let fields = &response.expect_error(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], "redirect", "{redirect:?}");
        assert_eq!((response.header("location"), response.header("set-cookie")), ("", ""), "{redirect:?}");
    }
    let start = async |query: &str| fixture.app.anonymous().get(&format!("/v1/auth/codehost/start{query}")).await;
    for query in ["", "?", "?redirected=x", "?redirect=http%3A%2F%2Flocalhost%3A3000&redirect=https%3A%2F%2Fevil.org"] {
        assert_eq!(
            start(query).await.expect_error(400, "bad_request")["details"]["fields"][0]["path"],
            "redirect",
            "{query}"
        );
    }
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.pending_logins").await, Vec::<Value>::new());
}
