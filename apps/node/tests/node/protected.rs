//! Protected sites.

use argon2::PasswordHasher as _;
use reqwest::header::{COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, sha256};
use crate::running::{Dir, RunningNode, until};
use crate::visitor::{Visitor, VisitorResponse};

pub const HOST: &str = "shop.localhost";
const PAGES: &[(&str, &[u8])] = &[("assets/index.html", b"inside"), ("assets/a.txt", b"a")];
pub const CALLBACK: &str = "/__svc/access/callback";
const FORM: &str = "/__svc/access/password";

/// Starts a node with a site of this policy.
pub async fn site(core: &ControlPlane, dir: &Dir, access: Value) -> RunningNode {
    core.protect("shop", PAGES, access);
    let running = RunningNode::start(core, dir).await;
    until("the site", || core.last_report("shop").is_some()).await;
    running
}

pub fn cookie_of(seen: &VisitorResponse) -> String {
    let cookie = seen.header(SET_COOKIE.as_str());
    for attribute in ["__svc_access=", "; HttpOnly", "; SameSite=Lax", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(attribute), "{attribute}: {cookie}");
    }
    assert!(!cookie.contains("Domain"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

async fn send_with_cookie(request: RequestBuilder, cookie: &str) -> VisitorResponse {
    Visitor::send(request.header(COOKIE, cookie)).await
}

async fn post(visitor: &Visitor, host: &str, password: &str, next: &str) -> VisitorResponse {
    let form = serde_urlencoded::to_string([("password", password), ("next", next)]).unwrap();
    Visitor::send(visitor.request(Method::POST, host, FORM).body(form)).await
}

/// Returns the hash of a password, with cheap parameters that keep the tests fast.
fn hash(password: &str) -> String {
    let parameters = argon2::Params::new(64, 1, 1, None).unwrap();
    let argon2 = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, parameters);
    argon2.hash_password_with_salt(password.as_bytes(), b"saltsaltsaltsalt").unwrap().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_sign_in_through_the_dashboard() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    let visitor = &running.visitor;
    let redirected = visitor.get(HOST, "/a.txt?x=1&y=%2F").await;
    assert_eq!((redirected.status, redirected.header("cache-control")), (302, "no-store"));
    let sign_in: reqwest::Url = redirected.header(LOCATION.as_str()).parse().unwrap();
    assert!(sign_in.as_str().starts_with("https://dashboard.example/access/authorize?"), "{sign_in}");
    let pairs: Vec<(String, String)> = sign_in.query_pairs().into_owned().collect();
    assert_eq!(pairs, [("to".into(), HOST.into()), ("next".into(), "/a.txt?x=1&y=%2F".into())]);
    // Requests that are not navigations receive 401 instead of a redirect.
    let refused = Visitor::send(visitor.request(Method::POST, HOST, "/")).await;
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, "Form"));

    core.allow_code("good", HOST, "shop");
    core.allow_code("elsewhere", HOST, "another");
    let back = |code: &str, next: &str| format!("{CALLBACK}?code={code}&next={next}");
    for code in ["bad", "elsewhere", ""] {
        let refused = visitor.get(HOST, &back(code, "%2F")).await;
        assert_eq!((refused.status, refused.header(SET_COOKIE.as_str())), (403, ""), "{code}");
    }
    assert_eq!(visitor.get(HOST, CALLBACK).await.status, 400);
    assert_eq!(visitor.get(HOST, &back(&"x".repeat(2000), "%2F")).await.status, 403);
    let signed_in = visitor.get(HOST, &back("good", "%2Fa.txt%3Fx%3D1")).await;
    assert_eq!((signed_in.status, signed_in.header(LOCATION.as_str())), (302, "/a.txt?x=1"));
    // This node serves plain HTTP: a browser would not send a `Secure` cookie back.
    let cookie = cookie_of(&signed_in);
    assert!(!signed_in.header(SET_COOKIE.as_str()).contains("Secure"));
    let inside = send_with_cookie(visitor.request(Method::GET, HOST, "/"), &cookie).await;
    assert_eq!(
        (inside.body.as_str(), inside.header("cache-control")),
        ("inside", "private, max-age=0, must-revalidate")
    );
    let with_others = send_with_cookie(visitor.request(Method::GET, HOST, "/"), &format!("a=b; {cookie}; c=d")).await;
    assert_eq!(with_others.status, 200);
    assert_eq!(visitor.get(HOST, &back("good", "%2F")).await.status, 403, "a second time");
    for forged in ["__svc_access=", "__svc_access=1.00", &format!("{cookie}0"), &cookie.replace('=', "=9")] {
        assert_eq!(send_with_cookie(visitor.request(Method::GET, HOST, "/"), forged).await.status, 302, "{forged}");
    }
    running.stop().await;

    // The cookie stays valid after a restart, and becomes invalid when the policy changes.
    let running = RunningNode::start(&core, &dir).await;
    assert_eq!(send_with_cookie(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    core.protect("shop", PAGES, json!({ "mode": "org", "password": null, "bypass": null, "version": 2 }));
    while send_with_cookie(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status != 302 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirect_after_sign_in_stays_on_the_host() {
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
async fn sign_in_returns_to_a_path_of_at_most_4096_bytes() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    let visitor = &running.visitor;
    let longest = format!("/{}", "&".repeat(4095));
    let too_long = format!("{longest}&");
    for (path, expected) in [(&longest, longest.as_str()), (&too_long, "/")] {
        let redirected = visitor.get(HOST, path).await;
        let sign_in: reqwest::Url = redirected.header(LOCATION.as_str()).parse().unwrap();
        let next = sign_in.query_pairs().into_owned().find(|(name, _)| name == "next");
        assert_eq!(next.unwrap().1, expected);
    }

    // In the form, each byte of the password and of the path has three bytes.
    let password = "\u{1f511}".repeat(128);
    let access = json!({ "mode": "password", "password": hash(&password), "bypass": null, "version": 2 });
    core.protect("shop", PAGES, access);
    while visitor.get(HOST, "/").await.status != 401 {}
    assert!(visitor.get(HOST, &longest).await.body.contains(&longest.replace('&', "&amp;")));
    assert!(visitor.get(HOST, &too_long).await.body.contains("name=\"next\" value=\"/\""));
    let signed_in = post(visitor, HOST, &password, &longest).await;
    assert_eq!((signed_in.status, signed_in.header(LOCATION.as_str())), (303, longest.as_str()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn password_is_required_and_attempts_are_limited() {
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
    assert!(wrong.body.contains("value=\"/a.txt\"") && wrong.body.contains("password is wrong"));
    let right = post(visitor, HOST, "correct horse", "/a.txt").await;
    assert_eq!((right.status, right.header(LOCATION.as_str())), (303, "/a.txt"));
    let cookie = cookie_of(&right);
    assert_eq!(send_with_cookie(visitor.request(Method::GET, HOST, "/a.txt"), &cookie).await.body, "a");
    assert_eq!(post(visitor, HOST, "correct horse", "//evil.example").await.header(LOCATION.as_str()), "/");

    // The limit is ten attempts per minute, and three are used.
    for _ in 0..7 {
        assert_eq!(post(visitor, HOST, "wrong", "/").await.status, 401);
    }
    let limited = post(visitor, HOST, "correct horse", "/").await;
    assert_eq!((limited.status, limited.header(SET_COOKIE.as_str())), (429, ""));
    assert!((1..=60).contains(&limited.header(RETRY_AFTER.as_str()).parse::<u32>().unwrap()));
    assert_eq!(send_with_cookie(visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    let large = visitor.request(Method::POST, HOST, FORM).body("x".repeat(20_000));
    assert_eq!(Visitor::send(large).await.status, 413);

    core.protect("shop", PAGES, access(2));
    while send_with_cookie(visitor.request(Method::GET, HOST, "/"), &cookie).await.status != 401 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_password_attempts_of_a_client_are_limited_over_all_hosts() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let access = json!({ "mode": "password", "password": hash("correct horse"), "bypass": null, "version": 1 });
    let running = site(&core, &dir, access).await;
    let hosts = ["one.localhost", "two.localhost", "three.localhost", "four.localhost", HOST];
    core.set_hostnames("shop", &hosts);
    while running.visitor.get(hosts[0], "/").await.status != 401 {}
    for _ in 0..10 {
        assert_eq!(post(&running.visitor, hosts[3], "correct horse", "/").await.status, 303);
    }
    for host in &hosts[..3] {
        for _ in 0..10 {
            assert_eq!(post(&running.visitor, host, "wrong", "/").await.status, 401);
        }
    }
    assert_eq!(post(&running.visitor, HOST, "correct horse", "/").await.status, 429);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bypass_key_is_accepted_and_unknown_policy_is_denied() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let key = sha256(b"svc_byp_key");
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": key, "version": 1 })).await;
    let status_with_key = async |key: &str| {
        let request = running.visitor.request(Method::GET, HOST, "/").header("Svc-Access-Bypass", key);
        Visitor::send(request).await.status
    };
    assert_eq!(
        (status_with_key("svc_byp_key").await, status_with_key("svc_byp_other").await, status_with_key("").await),
        (200, 302, 302)
    );
    core.protect("shop", PAGES, json!({ "mode": "by-invitation", "bypass": key, "version": 2 }));
    while status_with_key("svc_byp_other").await != 403 {}
    assert_eq!(status_with_key("svc_byp_key").await, 200);
    // A password policy without a password denies all visitors.
    core.protect("shop", PAGES, json!({ "mode": "password", "password": null, "bypass": null, "version": 3 }));
    while status_with_key("svc_byp_key").await != 403 {}
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookies_stay_valid_and_sign_in_fails_while_the_control_plane_is_down() {
    let (mut core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    core.allow_code("good", HOST, "shop");
    let cookie = cookie_of(&running.visitor.get(HOST, &format!("{CALLBACK}?code=good&next=%2F")).await);
    core.stop().await;
    running.stop().await;
    let running = RunningNode::start(&core, &dir).await;
    assert_eq!(send_with_cookie(running.visitor.request(Method::GET, HOST, "/"), &cookie).await.status, 200);
    assert_eq!(running.visitor.get(HOST, "/").await.status, 302);
    assert_eq!(running.visitor.get(HOST, &format!("{CALLBACK}?code=good&next=%2F")).await.status, 503);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_from_the_dashboard_are_limited() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let running = site(&core, &dir, json!({ "mode": "org", "password": null, "bypass": null, "version": 1 })).await;
    for _ in 0..30 {
        assert_eq!(running.visitor.get(HOST, &format!("{CALLBACK}?code=bad&next=%2F")).await.status, 403);
    }
    let limited = running.visitor.get(HOST, &format!("{CALLBACK}?code=bad&next=%2F")).await;
    assert!(limited.status == 429 && !limited.header(RETRY_AFTER.as_str()).is_empty());
    running.stop().await;
}
