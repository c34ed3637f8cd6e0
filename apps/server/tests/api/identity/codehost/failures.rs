//! What the code host and its users may do to a sign-in.

use reqwest::Method;
use sandbox::{CodeHostFault, Endpoint};
use serde_json::{Value, json};

use super::{World, error, token};

#[tokio::test(flavor = "multi_thread")]
async fn who_says_no_is_told_so() {
    let world = World::new().await;
    world.host.deny(true);
    let begun = world.begin().await;
    let path = world.authorize(&begun).await;
    let answer = world.callback(&path, Some(begun.cookie())).await;
    assert_eq!(error(&answer), "access_denied");
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    world.callback(&path, Some(begun.cookie())).await.refused(400, "bad_request");
    world.host.deny(false);
    token(&world.sign_in().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_code_host_puts_into_the_callback_is_not_repeated() {
    let world = World::new().await;
    for (query, code) in [
        ("error=server_error", "codehost_unavailable"),
        ("error=%3Cscript%3E%0d%0aX:%20y", "codehost_unavailable"),
        ("error=access_denied&code=code_00000001", "access_denied"),
        ("code=made-up", "access_denied"),
        ("code=", "access_denied"),
        ("", "codehost_unavailable"),
    ] {
        let begun = world.begin().await;
        let path = format!("/v1/auth/codehost/callback?{query}&state={}", begun.parameters()["state"]);
        let answer = world.callback(&path, Some(begun.cookie())).await;
        assert_eq!(error(&answer), code, "{query}");
        assert!(!answer.header("location").contains("script"));
    }
    assert_eq!(world.app.db_rows("SELECT * FROM identity.users").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_host_that_fails_is_told_of_in_the_fragment() {
    let world = World::new().await;
    let refusal = |error: &str| CodeHostFault::Json(json!({ "error": error, "error_description": "<b>words</b>" }));
    let both = [
        CodeHostFault::Html,
        CodeHostFault::Large,
        CodeHostFault::Redirect,
        CodeHostFault::Close,
        CodeHostFault::Status(500),
        CodeHostFault::Status(503),
        CodeHostFault::Status(401),
        CodeHostFault::Status(204),
        CodeHostFault::Json(json!(null)),
        CodeHostFault::Json(json!([1, 2])),
        CodeHostFault::Json(json!("text")),
        CodeHostFault::Json(json!({})),
    ];
    let token_page = [
        (refusal("bad_verification_code"), "access_denied"),
        (refusal("invalid_grant"), "access_denied"),
        (refusal("incorrect_client_credentials"), "codehost_unavailable"),
        (refusal("<script>"), "codehost_unavailable"),
        (CodeHostFault::Json(json!({ "access_token": 7, "token_type": "bearer" })), "codehost_unavailable"),
        (CodeHostFault::Json(json!({ "access_token": "a\r\nb", "token_type": "bearer" })), "codehost_unavailable"),
        (CodeHostFault::Json(json!({ "access_token": "gho_x", "token_type": "mac" })), "codehost_unavailable"),
        // A token of somebody who then is not there.
        (CodeHostFault::Json(json!({ "access_token": "gho_x", "token_type": "bearer" })), "codehost_unavailable"),
    ];
    let user_page = [
        json!({ "id": "1 2", "login": "ada" }),
        json!({ "id": -1, "login": "ada" }),
        json!({ "id": 1, "login": "<script>" }),
        json!({ "id": 1 }),
    ];
    let unavailable = "codehost_unavailable";
    let mut cases: Vec<(Endpoint, CodeHostFault, &str)> = Vec::new();
    for page in [Endpoint::Token, Endpoint::User] {
        cases.extend(both.iter().map(|failure| (page, failure.clone(), unavailable)));
    }
    cases.extend(token_page.into_iter().map(|(failure, code)| (Endpoint::Token, failure, code)));
    cases.extend(user_page.into_iter().map(|user| (Endpoint::User, CodeHostFault::Json(user), unavailable)));
    for (page, failure, code) in cases {
        world.host.inject(page, Some(failure.clone()));
        assert_eq!(error(&world.sign_in().await), code, "{page:?} {failure:?}");
        world.host.inject(page, None);
    }
    assert!(world.host.requested().iter().all(|page| !page.contains("elsewhere")));
    assert_eq!(world.app.db_rows("SELECT * FROM identity.users").await, Vec::<Value>::new());
    token(&world.sign_in().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_host_that_hangs_is_told_of_in_the_fragment_too() {
    let world = World::new().await;
    world.host.inject(Endpoint::User, Some(CodeHostFault::Hang));
    let hangs = world.sign_in();
    let answer = tokio::time::timeout(std::time::Duration::from_secs(12), hangs).await.unwrap();
    assert_eq!(error(&answer), "codehost_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_host_that_is_gone_is_told_of_in_the_fragment() {
    let world = World::new().await;
    let begun = world.begin().await;
    let path = world.authorize(&begun).await;
    let World { app, host } = world;
    drop(host);
    let cookie = format!("{}={}", begun.cookie.0, begun.cookie.1);
    let answer = app.anyone().send(Method::GET, &path, |request| request.header("cookie", cookie)).await;
    assert_eq!(error(&answer), "codehost_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_code_host_says_of_a_person_is_checked() {
    let world = World::new().await;
    world.host.sign_in_as(json!({
        "login": "www", "id": "u-1", "name": "Eve\u{202e}\u{0}\r\nX", "email": "not an address",
        "avatar_url": "javascript:alert(1)",
    }));
    let me = world.app.with_token(&token(&world.sign_in().await)).get("/v1/me").await.expect(200).clone();
    assert_eq!((&me["email"], &me["avatarUrl"]), (&json!(null), &json!(null)));
    assert!(me["name"].as_str().unwrap().chars().all(|c| !c.is_control() && c != '\u{202e}'));
    // A reserved name is nobody's slug.
    assert_eq!(me["orgs"][0]["slug"], "www-2");
}
