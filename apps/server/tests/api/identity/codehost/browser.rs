//! Whose sign-in it is, and until when.

use serde_json::Value;

use super::{World, error, token};

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_ends_once() {
    let world = World::new().await;
    let begun = world.begin().await;
    let path = world.authorize(&begun).await;
    token(&world.callback(&path, Some(begun.cookie())).await);
    world.callback(&path, Some(begun.cookie())).await.refused(400, "bad_request");
    let (pages, at_once) = (world.host.requested().len(), world.begin().await);
    let path = world.authorize(&at_once).await;
    let answers = (0..20).map(|_| world.callback(&path, Some(at_once.cookie())));
    let answers = futures_util::future::join_all(answers).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 302).count(), 1);
    for refused in answers.iter().filter(|answer| answer.status != 302) {
        refused.refused(400, "bad_request");
    }
    // The code host was asked about one code, once.
    assert_eq!(world.host.requested().len(), pages + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_browser_that_began_it_ends_a_sign_in() {
    let world = World::new().await;
    // Somebody signs in as themselves and hands the last link on.
    let attacker = world.begin().await;
    let link = world.authorize(&attacker).await;
    // The victim may have no sign-in under way, or one of their own; under their cookie's name, or the attacker's.
    let victim = world.begin().await;
    for cookie in [
        None,
        Some(victim.cookie()),
        Some((attacker.cookie.0.as_str(), victim.cookie.1.as_str())),
        Some((victim.cookie.0.as_str(), attacker.cookie.1.as_str())),
        Some((attacker.cookie.0.as_str(), "")),
        Some((attacker.cookie.0.as_str(), attacker.parameters()["state"].as_str())),
    ] {
        let answer = world.callback(&link, cookie).await;
        answer.refused(400, "bad_request");
        assert_eq!(answer.header("location"), "");
    }
    // Their own code with the other's state helps neither.
    let own = world.authorize(&victim).await;
    let state = |path: &str| path.split("state=").nth(1).unwrap().to_owned();
    let mixed = link.replace(&state(&link), &state(&own));
    assert_eq!(error(&world.callback(&mixed, Some(victim.cookie())).await), "access_denied");
    // Nobody but the two of them was signed in, and the attempts spoilt nothing.
    assert_eq!(world.app.db_rows("SELECT * FROM identity.sessions").await, Vec::<Value>::new());
    let answer = world.callback(&link, Some(attacker.cookie())).await;
    // The code went with the mixture.
    assert_eq!(error(&answer), "access_denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_sign_in_side_by_side() {
    let world = World::new().await;
    let (one, two) = (world.begin().await, world.begin().await);
    assert_ne!(one.cookie.0, two.cookie.0);
    // The browser sends both cookies with both.
    let both = format!("{}={}; {}", one.cookie.0, one.cookie.1, two.cookie.0);
    let (first, second) = (world.authorize(&one).await, world.authorize(&two).await);
    let cookie = Some((both.as_str(), two.cookie.1.as_str()));
    let (second, first) = (world.callback(&second, cookie).await, world.callback(&first, cookie).await);
    for answer in [&first, &second] {
        world.app.with_token(&token(answer)).get("/v1/me").await.expect(200);
    }
    // Each answer takes its own cookie away.
    assert!(first.header("set-cookie").starts_with(&one.cookie.0));
    assert!(second.header("set-cookie").starts_with(&two.cookie.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_that_takes_too_long_has_to_begin_again() {
    let world = World::new().await;
    let (late, in_time) = (world.begin().await, world.begin().await);
    let (first, second) = (world.authorize(&late).await, world.authorize(&in_time).await);
    world.app.clock.advance(590);
    token(&world.callback(&second, Some(in_time.cookie())).await);
    world.app.clock.advance(11);
    world.callback(&first, Some(late.cookie())).await.refused(400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_nobody_began_is_refused() {
    let world = World::new().await;
    let begun = world.begin().await;
    let state = begun.parameters()["state"].clone();
    let (name, value) = begun.cookie();
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
        let answer = world.callback(&format!("/v1/auth/codehost/callback{query}"), Some((name, value))).await;
        answer.refused(400, "bad_request");
        assert_eq!((answer.header("location"), answer.header("set-cookie")), ("", ""), "{query}");
    }
    // None of it cost the true one its chance.
    let path = world.authorize(&begun).await;
    token(&world.callback(&path, Some(begun.cookie())).await);
}
