//! Errors and malformed data from the code host during a sign-in.

use reqwest::Method;
use sandbox::{Endpoint, ResponseFault};
use serde_json::{Value, json};

use super::{Fixture, error, token};

#[tokio::test(flavor = "multi_thread")]
async fn denied_sign_in_returns_access_denied() {
    let fixture = Fixture::new().await;
    fixture.host.deny(true);
    let started = fixture.start_sign_in().await;
    let path = fixture.authorize(&started).await;
    let response = fixture.callback(&path, Some(started.cookie())).await;
    assert_eq!(error(&response), "access_denied");
    assert!(response.header("set-cookie").contains("Max-Age=0"));
    fixture.callback(&path, Some(started.cookie())).await.expect_error(400, "bad_request");
    fixture.host.deny(false);
    token(&fixture.sign_in().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_parameters_are_not_reflected() {
    let fixture = Fixture::new().await;
    for (query, code) in [
        ("error=server_error", "codehost_unavailable"),
        ("error=%3Cscript%3E%0d%0aX:%20y", "codehost_unavailable"),
        ("error=access_denied&code=code_00000001", "access_denied"),
        ("code=made-up", "access_denied"),
        ("code=", "access_denied"),
        ("", "codehost_unavailable"),
    ] {
        let started = fixture.start_sign_in().await;
        let path = format!("/v1/auth/codehost/callback?{query}&state={}", started.parameters()["state"]);
        let response = fixture.callback(&path, Some(started.cookie())).await;
        assert_eq!(error(&response), code, "{query}");
        assert!(!response.header("location").contains("script"));
    }
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.users").await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn code_host_failure_is_reported_in_the_fragment() {
    let fixture = Fixture::new().await;
    let refusal = |error: &str| ResponseFault::Json(json!({ "error": error, "error_description": "<b>words</b>" }));
    let both = [
        ResponseFault::Html,
        ResponseFault::Large,
        ResponseFault::Redirect,
        ResponseFault::Close,
        ResponseFault::Status(500),
        ResponseFault::Status(503),
        ResponseFault::Status(401),
        ResponseFault::Status(204),
        ResponseFault::Json(json!(null)),
        ResponseFault::Json(json!([1, 2])),
        ResponseFault::Json(json!("text")),
        ResponseFault::Json(json!({})),
    ];
    let token_page = [
        (refusal("bad_verification_code"), "access_denied"),
        (refusal("invalid_grant"), "access_denied"),
        (refusal("incorrect_client_credentials"), "codehost_unavailable"),
        (refusal("<script>"), "codehost_unavailable"),
        (ResponseFault::Json(json!({ "access_token": 7, "token_type": "bearer" })), "codehost_unavailable"),
        (ResponseFault::Json(json!({ "access_token": "a\r\nb", "token_type": "bearer" })), "codehost_unavailable"),
        (ResponseFault::Json(json!({ "access_token": "gho_x", "token_type": "mac" })), "codehost_unavailable"),
        // The user endpoint rejects this token.
        (ResponseFault::Json(json!({ "access_token": "gho_x", "token_type": "bearer" })), "codehost_unavailable"),
    ];
    let user_page = [
        json!({ "id": "1 2", "login": "ada" }),
        json!({ "id": -1, "login": "ada" }),
        json!({ "id": 1, "login": "<script>" }),
        json!({ "id": 1 }),
    ];
    let unavailable = "codehost_unavailable";
    let mut cases: Vec<(Endpoint, ResponseFault, &str)> = Vec::new();
    for page in [Endpoint::Token, Endpoint::User] {
        cases.extend(both.iter().map(|failure| (page, failure.clone(), unavailable)));
    }
    cases.extend(token_page.into_iter().map(|(failure, code)| (Endpoint::Token, failure, code)));
    cases.extend(user_page.into_iter().map(|user| (Endpoint::User, ResponseFault::Json(user), unavailable)));
    for (page, failure, code) in cases {
        fixture.host.inject(page, Some(failure.clone()));
        assert_eq!(error(&fixture.sign_in().await), code, "{page:?} {failure:?}");
        fixture.host.inject(page, None);
    }
    assert!(fixture.host.requests().iter().all(|page| !page.contains("elsewhere")));
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.users").await, Vec::<Value>::new());
    token(&fixture.sign_in().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn code_host_timeout_is_reported_in_the_fragment() {
    let fixture = Fixture::new().await;
    fixture.host.inject(Endpoint::User, Some(ResponseFault::Hang));
    let hangs = fixture.sign_in();
    let response = tokio::time::timeout(std::time::Duration::from_secs(12), hangs).await.unwrap();
    assert_eq!(error(&response), "codehost_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_code_host_is_reported_in_the_fragment() {
    let fixture = Fixture::new().await;
    let started = fixture.start_sign_in().await;
    let path = fixture.authorize(&started).await;
    let Fixture { app, host } = fixture;
    drop(host);
    let cookie = format!("{}={}", started.cookie.0, started.cookie.1);
    let response = app.anonymous().send(Method::GET, &path, |request| request.header("cookie", cookie)).await;
    assert_eq!(error(&response), "codehost_unavailable");
}

#[tokio::test(flavor = "multi_thread")]
async fn profile_from_the_code_host_is_sanitized() {
    let fixture = Fixture::new().await;
    fixture.host.sign_in_as(json!({
        "login": "www", "id": "u-1", "name": "Eve\u{202e}\u{0}\r\nX", "email": "not an address",
        "avatar_url": "javascript:alert(1)",
    }));
    let me = fixture.app.with_token(&token(&fixture.sign_in().await)).get("/v1/me").await.expect(200).clone();
    assert_eq!((&me["email"], &me["avatarUrl"]), (&json!(null), &json!(null)));
    assert!(me["name"].as_str().unwrap().chars().all(|c| !c.is_control() && c != '\u{202e}'));
    // A reserved name cannot be a slug.
    assert_eq!(me["orgs"][0]["slug"], "www-2");
}
