//! Sites that are not for everybody.

use argon2::PasswordHasher as _;
use reqwest::header::{COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, sha256};
use crate::running::{Dir, Running, until};
use crate::visitor::{Seen, Visitor};

const HOST: &str = "shop.localhost";
const PAGES: &[(&str, &[u8])] = &[("assets/index.html", b"inside"), ("assets/a.txt", b"a")];
const CALLBACK: &str = "/__svc/access/callback";
const FORM: &str = "/__svc/access/password";
/// A node with a site of this policy.
async fn site(core: &ControlPlane, dir: &Dir, access: Value) -> Running {
    core.protect("shop", PAGES, access);
    let running = Running::start(core, dir).await;
    until("the site", || core.last_report("shop").is_some()).await;
    running
}

fn cookie_of(seen: &Seen) -> String {
    let cookie = seen.header(SET_COOKIE.as_str());
    for attribute in ["__svc_access=", "; HttpOnly", "; SameSite=Lax", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

async fn with(request: RequestBuilder, cookie: &str) -> Seen {
    Visitor::send(request.header(COOKIE, cookie)).await
}

async fn post(visitor: &Visitor, host: &str, password: &str, next: &str) -> Seen {
    let form = serde_urlencoded::to_string([("password", password), ("next", next)]).unwrap();
    Visitor::send(visitor.request(Method::POST, host, FORM).body(form)).await
}

/// With parameters that cost a test little.
fn hash(password: &str) -> String {
    let parameters = argon2::Params::new(64, 1, 1, None).unwrap();
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, parameters);
    argon2.hash_password_with_salt(password.as_bytes(), b"saltsaltsaltsalt").unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_in_through_the_dashboard() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    let visitor = &running.visitor;
    let sent_away = visitor.get(HOST, "/a.txt?x=1&y=%2F").await;
    assert_eq!((sent_away.status, sent_away.header("cache-control")), (302, "no-store"));
    let screen: reqwest::Url = sent_away.header(LOCATION.as_str()).parse().unwrap();
    assert!(screen.as_str().starts_with("https://dashboard.example/access/authorize?"), "{screen}");
    let pairs: Vec<(String, String)> = screen.query_pairs().into_owned().collect();
    assert_eq!(pairs, [("to".into(), HOST.into()), ("next".into(), "/a.txt?x=1&y=%2F".into())]);
    // What a browser does not follow is told so.
    assert_eq!(Visitor::send(visitor.request(Method::POST, HOST, "/")).await.status, 401);

    core.allow_code("good", HOST, "shop");
    core.allow_code("elsewhere", HOST, "another");
    let back = |code: &str, next: &str| format!("{CALLBACK}?code={code}&next={next}");
    for code in ["bad", "elsewhere", ""] {
        let refused = visitor.get(HOST, &back(code, "%2F")).await;
        assert_eq!((refused.status, refused.header(SET_COOKIE.as_str())), (403, ""), "{code}");
    }
    assert_eq!(visitor.get(HOST, CALLBACK).await.status, 400);
    assert_eq!(visitor.get(HOST, &back(&"x".repeat(2000), "%2F")).await.status, 403);
    let let_in = visitor.get(HOST, &back("good", "%2Fa.txt%3Fx%3D1")).await;
    assert_eq!((let_in.status, let_in.header(LOCATION.as_str())), (302, "/a.txt?x=1"));
    // Not over https here, so not `Secure`, or the browser would never send it back.
    let cookie = cookie_of(&let_in);
    assert!(!let_in.header(SET_COOKIE.as_str()).contains("Secure"));
    let inside = with(visitor.request(Method::GET, HOST, "/"), &cookie).await;
    assert_eq!(
        (inside.body.as_str(), inside.header("cache-control")),
        ("inside", "private, max-age=0, must-revalidate")
    );
    let beside = with(visitor.request(Method::GET, HOST, "/"), &format!("a=b; {cookie}; c=d")).await;
    assert_eq!(beside.status, 200);
    assert_eq!(visitor.get(HOST, &back("good", "%2F")).await.status, 403, "a second time");
    for forged in ["__svc_access=", "__svc_access=1.00", &format!("{cookie}0"), &cookie.replace('=', "=9")] {
        assert_eq!(with(visitor.request(Method::GET, HOST, "/"), forged).await.status, 302, "{forged}");
    }
    running.stop().await;

    // The pass outlives the node, and ends with the policy.
    let running = Running::start(&core, &dir).await;
    assert_eq!(with(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    core.protect("shop", PAGES, json!({ "mode": "org", "password": null, "bypass": null, "version": 2 }));
    while with(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status != 302 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_way_in_leads_stays_at_the_host() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    for (number, next) in
        ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\\b", "/%0d%0ax"].iter().enumerate()
    {
        let code = format!("code-{number}");
        core.allow_code(&code, HOST, "shop");
        let query = serde_urlencoded::to_string([("code", code.as_str()), ("next", next)]).unwrap();
        let seen = running.visitor.get(HOST, &format!("{CALLBACK}?{query}")).await;
        let location = seen.header(LOCATION.as_str());
        assert!(
            seen.status == 302 && (location == "/" || location == *next && *next == "/%0d%0ax"),
            "{next}: {location}"
        );
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_password_is_asked_for_and_guessing_is_slowed() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let access = |version: i32| json!({ "mode": "password", "password": hash("correct horse"), "bypass": null, "version": version });
    let running = site(&core, &dir, access(1)).await;
    let visitor = &running.visitor;
    let asked = visitor.get(HOST, "/a.txt?q=\"><script>").await;
    assert_eq!((asked.status, asked.header("cache-control")), (401, "no-store"));
    assert!(asked.body.contains("action=\"/__svc/access/password\"") && asked.body.contains("name=\"next\""));
    assert!(!asked.body.contains("inside") && !asked.body.contains("<script>"));
    let wrong = post(visitor, HOST, "wrong", "/a.txt").await;
    assert_eq!((wrong.status, wrong.header(SET_COOKIE.as_str())), (401, ""));
    assert!(wrong.body.contains("value=\"/a.txt\"") && wrong.body.contains("not the password"));
    let right = post(visitor, HOST, "correct horse", "/a.txt").await;
    assert_eq!((right.status, right.header(LOCATION.as_str())), (303, "/a.txt"));
    let cookie = cookie_of(&right);
    assert_eq!(with(visitor.request(Method::GET, HOST, "/a.txt"), &cookie).await.body, "a");
    assert_eq!(post(visitor, HOST, "correct horse", "//evil.example").await.header(LOCATION.as_str()), "/");

    // Ten attempts in a minute, and three of them are spent.
    for _ in 0..7 {
        assert_eq!(post(visitor, HOST, "wrong", "/").await.status, 401);
    }
    let slowed = post(visitor, HOST, "correct horse", "/").await;
    assert_eq!((slowed.status, slowed.header(SET_COOKIE.as_str())), (429, ""));
    assert!((1..=60).contains(&slowed.header(RETRY_AFTER.as_str()).parse::<u32>().unwrap()));
    assert_eq!(with(visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    let large = visitor.request(Method::POST, HOST, FORM).body("x".repeat(20_000));
    assert_eq!(Visitor::send(large).await.status, 413);

    core.protect("shop", PAGES, access(2));
    while with(visitor.request(Method::GET, HOST, "/"), &cookie).await.status != 401 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_passes_by_and_no_unknown_policy_does() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let key = sha256(b"svc_byp_key");
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": key, "version": 1 })).await;
    let by = async |key: &str| {
        let request = running.visitor.request(Method::GET, HOST, "/").header("Svc-Access-Bypass", key);
        Visitor::send(request).await.status
    };
    assert_eq!((by("svc_byp_key").await, by("svc_byp_other").await, by("").await), (200, 302, 302));
    core.protect("shop", PAGES, json!({ "mode": "by-invitation", "bypass": key, "version": 2 }));
    while by("svc_byp_other").await != 403 {}
    assert_eq!(by("svc_byp_key").await, 200);
    // Without a password there is no way in by one.
    core.protect("shop", PAGES, json!({ "mode": "password", "password": null, "bypass": null, "version": 3 }));
    while by("svc_byp_key").await != 403 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_control_plane_away_who_is_in_stays_in_and_nobody_else_comes() {
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    core.allow_code("good", HOST, "shop");
    let cookie = cookie_of(&running.visitor.get(HOST, &format!("{CALLBACK}?code=good&next=%2F")).await);
    core.go_away().await;
    running.stop().await;
    let running = Running::start(&core, &dir).await;
    assert_eq!(with(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    assert_eq!(running.visitor.get(HOST, "/").await.status, 302);
    assert_eq!(running.visitor.get(HOST, &format!("{CALLBACK}?code=good&next=%2F")).await.status, 503);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn coming_back_from_the_dashboard_is_slowed_too() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    for _ in 0..30 {
        assert_eq!(running.visitor.get(HOST, &format!("{CALLBACK}?code=bad&next=%2F")).await.status, 403);
    }
    let slowed = running.visitor.get(HOST, &format!("{CALLBACK}?code=bad&next=%2F")).await;
    assert!(slowed.status == 429 && !slowed.header(RETRY_AFTER.as_str()).is_empty());
    running.stop().await;
}
