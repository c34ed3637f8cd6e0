//! Binding of a sign-in to a browser, and its expiry.

use serde_json::Value;

use super::{Fixture, error, token};

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_completes_once() {
    let fixture = Fixture::new().await;
    let started = fixture.start_sign_in().await;
    let path = fixture.authorize(&started).await;
    token(&fixture.callback(&path, Some(started.cookie())).await);
    fixture.callback(&path, Some(started.cookie())).await.expect_error(400, "bad_request");
    let (pages, started) = (fixture.host.requests().len(), fixture.start_sign_in().await);
    let path = fixture.authorize(&started).await;
    let responses = (0..20).map(|_| fixture.callback(&path, Some(started.cookie())));
    let responses = futures_util::future::join_all(responses).await;
    assert_eq!(responses.iter().filter(|response| response.status == 302).count(), 1);
    for refused in responses.iter().filter(|response| response.status != 302) {
        refused.expect_error(400, "bad_request");
    }
    // For all these callbacks, the code host received only one authorization, one token and one user request.
    assert_eq!(fixture.host.requests().len(), pages + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_browser_that_started_a_sign_in_can_complete_it() {
    let fixture = Fixture::new().await;
    // The attacker starts a sign-in and sends the callback URL to a victim.
    let attacker = fixture.start_sign_in().await;
    let link = fixture.authorize(&attacker).await;
    // The victim's browser has no sign-in, its own sign-in, or a mixture of cookie names and values.
    let victim = fixture.start_sign_in().await;
    for cookie in [
        None,
        Some(victim.cookie()),
        Some((attacker.cookie.0.as_str(), victim.cookie.1.as_str())),
        Some((victim.cookie.0.as_str(), attacker.cookie.1.as_str())),
        Some((attacker.cookie.0.as_str(), "")),
        Some((attacker.cookie.0.as_str(), attacker.parameters()["state"].as_str())),
    ] {
        let response = fixture.callback(&link, cookie).await;
        response.expect_error(400, "bad_request");
        assert_eq!(response.header("location"), "");
    }
    // The attacker's code with the victim's state is rejected.
    let own = fixture.authorize(&victim).await;
    let state = |path: &str| path.split("state=").nth(1).unwrap().to_owned();
    let mixed = link.replace(&state(&link), &state(&own));
    assert_eq!(error(&fixture.callback(&mixed, Some(victim.cookie())).await), "access_denied");
    // The attempts created no session.
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.sessions").await, Vec::<Value>::new());
    let response = fixture.callback(&link, Some(attacker.cookie())).await;
    // The code was used up in the mixed attempt.
    assert_eq!(error(&response), "access_denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_sign_in_concurrently() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.start_sign_in().await, fixture.start_sign_in().await);
    assert_ne!(one.cookie.0, two.cookie.0);
    // The browser sends both cookies with each request.
    let both = format!("{}={}; {}", one.cookie.0, one.cookie.1, two.cookie.0);
    let (first, second) = (fixture.authorize(&one).await, fixture.authorize(&two).await);
    let cookie = Some((both.as_str(), two.cookie.1.as_str()));
    let (second, first) = (fixture.callback(&second, cookie).await, fixture.callback(&first, cookie).await);
    for response in [&first, &second] {
        fixture.app.with_token(&token(response)).get("/v1/me").await.expect(200);
    }
    // Each response deletes its own cookie.
    assert!(first.header("set-cookie").starts_with(&one.cookie.0));
    assert!(second.header("set-cookie").starts_with(&two.cookie.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_expires_after_ten_minutes() {
    let fixture = Fixture::new().await;
    fixture.app.clock.stop();
    let (late, in_time) = (fixture.start_sign_in().await, fixture.start_sign_in().await);
    let (first, second) = (fixture.authorize(&late).await, fixture.authorize(&in_time).await);
    fixture.app.clock.advance(590);
    token(&fixture.callback(&second, Some(in_time.cookie())).await);
    fixture.app.clock.advance(11);
    fixture.callback(&first, Some(late.cookie())).await.expect_error(400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_without_a_started_sign_in_is_rejected() {
    let fixture = Fixture::new().await;
    let started = fixture.start_sign_in().await;
    let state = started.parameters()["state"].clone();
    let (name, value) = started.cookie();
    let other = format!("{}{}", &state[..state.len() - 4], "AAAA");
    let long = "x".repeat(4000);
    for query in [
        "",
        "?code=x",
        "?code=x&state=",
        "?code=x&state=garbage",
        "?code=x&state=svc_ses_garbage",
        "?code=x&state=%00",
        "?code=x&state=%0d%0aSet-Cookie:%20a=b",
        &format!("?code=x&state={other}"),
        &format!("?code=x&state={long}"),
        &format!("?code=x&state={state}&state={state}"),
        &format!("?code=x&code=y&state={state}"),
        "?error=access_denied&state=garbage",
        "?error=access_denied",
    ] {
        let response = fixture.callback(&format!("/v1/auth/codehost/callback{query}"), Some((name, value))).await;
        response.expect_error(400, "bad_request");
        assert_eq!((response.header("location"), response.header("set-cookie")), ("", ""), "{query}");
    }
    // The genuine callback still works.
    let path = fixture.authorize(&started).await;
    token(&fixture.callback(&path, Some(started.cookie())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn encoded_cookie_name_of_another_host_does_not_complete_a_sign_in() {
    let fixture = Fixture::at("https://api.example.org").await;
    let attacker = fixture.start_sign_in().await;
    let link = fixture.authorize(&attacker).await;
    let (name, value) = attacker.cookie();
    assert!(name.starts_with("__Host-"), "{name}");
    let encoded: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for cookie in [
        format!("{}={value}", name.replace("__Host-", "%5F%5FHost-")),
        format!("{}={value}", name.replace("__Host-", "__Host%2d")),
        format!("{}={value}", name.to_ascii_lowercase()),
        format!("{name}={encoded}"),
        format!("{name}=\"{value}\""),
        format!("\u{a0}{name}={value}"),
        // A browser never sends two cookies with this name.
        format!("{name}={value}; {name}={value}"),
        format!("{name}=other; {name}={value}"),
        format!("{name}={value}; {name}="),
    ] {
        fixture.callback_with(&link, &[cookie.as_bytes()]).await.expect_error(400, "bad_request");
    }
    let cookie = format!("{name}={value}");
    let split = [cookie.as_bytes(), cookie.as_bytes()];
    fixture.callback_with(&link, &split).await.expect_error(400, "bad_request");
    assert_eq!(fixture.app.db_rows("SELECT * FROM identity.sessions").await, Vec::<Value>::new());
    // The rejected requests did not consume the sign-in.
    token(&fixture.callback(&link, Some(attacker.cookie())).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_bytes_do_not_hide_the_cookie() {
    let fixture = Fixture::at("https://api.example.org").await;
    for (before, after) in
        [(&b"theme=\xff\xfe; "[..], &b""[..]), (b"\xc3(; =; ;a; ", b";\x80=\x80"), (b"\x80; ", b" ;b")]
    {
        let started = fixture.start_sign_in().await;
        let path = fixture.authorize(&started).await;
        let (name, value) = started.cookie();
        let cookie = [before, format!("{name}={value}").as_bytes(), after].concat();
        token(&fixture.callback_with(&path, &[&cookie]).await);
    }
    // HTTP/2 clients may split the header (RFC 9113 section 8.2.3).
    let started = fixture.start_sign_in().await;
    let path = fixture.authorize(&started).await;
    let (name, value) = started.cookie();
    let cookie = format!("{name}={value}");
    token(&fixture.callback_with(&path, &[b"a=\xff", cookie.as_bytes(), b"b=2"]).await);
}
