//! Where a signed-in browser may be sent.

use serde_json::Value;

use super::{Begun, World, told};

#[tokio::test(flavor = "multi_thread")]
async fn the_redirect_keeps_its_own_path_and_query() {
    let world = World::new().await;
    for (asked, gone) in [
        ("https://app.example.org/signed-in/deep?tab=2&x=%20", "https://app.example.org/signed-in/deep?tab=2&x=%20"),
        ("http://localhost:3000", "http://localhost:3000/"),
        ("HTTPS://APP.example.org/signed-in", ""),
    ] {
        let answer = world.start(asked).await;
        if gone.is_empty() {
            answer.refused(400, "bad_request");
            continue;
        }
        let begun = Begun::of(&answer);
        let path = world.authorize(&begun).await;
        let answer = world.callback(&path, Some(begun.cookie())).await;
        let (place, told) = told(&answer);
        assert_eq!(place, gone);
        assert!(told.contains_key("token"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_trick_with_the_redirect_is_refused() {
    let world = World::new().await;
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
        let answer = world.start(redirect).await;
        let fields = &answer.refused(400, "bad_request")["details"]["fields"];
        assert_eq!(fields[0]["path"], "redirect", "{redirect:?}");
        assert_eq!((answer.header("location"), answer.header("set-cookie")), ("", ""), "{redirect:?}");
    }
    let start = async |query: &str| world.app.anyone().get(&format!("/v1/auth/codehost/start{query}")).await;
    for query in ["", "?", "?redirected=x", "?redirect=http%3A%2F%2Flocalhost%3A3000&redirect=https%3A%2F%2Fevil.org"] {
        assert_eq!(
            start(query).await.refused(400, "bad_request")["details"]["fields"][0]["path"],
            "redirect",
            "{query}"
        );
    }
    assert_eq!(world.app.db_rows("SELECT * FROM identity.logins").await, Vec::<Value>::new());
}
