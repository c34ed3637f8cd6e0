//! Attacks on sign-ins and sessions.

use futures_util::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use url::Url;

use super::visitor::{SESSION_COOKIE, location};
use super::{Platform, Visitor};

/// Values of `next`, and the paths to which they lead: a path of the same host, or `/`.
const NEXT: [(&str, &str); 42] = [
    ("/", "/"),
    ("/members", "/members"),
    ("/a?b=c&d=%2F%2Fevil.example", "/a?b=c&d=%2F%2Fevil.example"),
    ("/a//evil.example", "/a//evil.example"),
    ("/?next=//evil.example", "/?next=//evil.example"),
    ("/%2f%2fevil.example", "/%2f%2fevil.example"),
    ("/%5cevil.example", "/%5cevil.example"),
    ("/@evil.example", "/@evil.example"),
    ("/:80@evil.example", "/:80@evil.example"),
    ("/.evil.example", "/.evil.example"),
    ("/https://evil.example", "/https://evil.example"),
    ("/#//evil.example", "/#//evil.example"),
    ("", "/"),
    ("//evil.example", "/"),
    ("///evil.example", "/"),
    ("////evil.example", "/"),
    ("//evil.example/%2f..", "/"),
    ("//evil.example@club-ada.apps.localhost", "/"),
    ("/\\evil.example", "/"),
    ("/\\/evil.example", "/"),
    ("\\/evil.example", "/"),
    ("\\\\evil.example", "/"),
    ("/a\\..\\..\\evil.example", "/"),
    ("http://evil.example", "/"),
    ("https://evil.example", "/"),
    ("HTTPS://EVIL.EXAMPLE", "/"),
    ("https:/evil.example", "/"),
    ("https:evil.example", "/"),
    ("https:\\\\evil.example", "/"),
    ("javascript:alert(1)", "/"),
    ("data:text/html,<script>alert(1)</script>", "/"),
    ("evil.example", "/"),
    (".evil.example", "/"),
    ("@evil.example", "/"),
    ("?next=/", "/"),
    (" //evil.example", "/"),
    ("\t//evil.example", "/"),
    ("/\t/evil.example", "/"),
    ("/\n/evil.example", "/"),
    ("/\r\nSet-Cookie: a=b", "/"),
    ("/\0/evil.example", "/"),
    ("/\u{ff0f}evil.example", "/"),
];

#[tokio::test(flavor = "multi_thread")]
async fn next_leads_only_to_a_path_of_the_host() {
    let Some(platform) = Platform::with_club().await else { return };
    let origin = Url::parse(&platform.origin("club")).unwrap();
    let sign_in = async |next: &str| {
        let visitor = platform.visitor("club");
        let authorize = visitor.begin("codehost", next).await;
        let response = visitor.get(&visitor.submit(&authorize, &[("person", "ada")]).await).await;
        response.headers()["location"].to_str().unwrap().to_owned()
    };
    for (next, path) in NEXT {
        let location = sign_in(next).await;
        assert_eq!(location, path, "{next:?}");
        assert_eq!(origin.join(&location).unwrap().origin(), origin.origin(), "{next:?}");
    }
    // `/.//host` is a path of the same host, even after its dot segment is removed.
    for next in ["/.//evil.example", "/..//evil.example", "/a/..//evil.example", &format!("/{}", "a".repeat(3000))] {
        let target = origin.join(&sign_in(next).await).unwrap();
        assert_eq!(target.origin(), origin.origin(), "{next:?}");
    }
    // The page passes the path to its links.
    let page = platform.visitor("club").get("/__svc/auth/login?next=//evil.example").await.text().await.unwrap();
    assert!(page.contains("/__svc/auth/login/codehost") && !page.contains("evil"), "{page}");
    // A repeated parameter, and one that is not UTF-8.
    for query in ["next=/a&next=//evil.example", "next=%ff%2f%2fevil.example", "next=/%ff"] {
        let visitor = platform.visitor("club");
        let response = visitor.get(&format!("/__svc/auth/login/codehost?{query}")).await;
        let callback = visitor.submit(&location(&response), &[("person", "ada")]).await;
        let response = visitor.get(&callback).await;
        let target = origin.join(response.headers()["location"].to_str().unwrap()).unwrap();
        assert_eq!(target.origin(), origin.origin(), "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flow_is_bound_to_its_browser_tab_provider_and_project() {
    let Some(platform) = Platform::with_club().await else { return };
    platform.add_project("other").await;
    state_is_single_use(&platform).await;
    attacker_cannot_sign_a_victim_in(&platform).await;
    tabs_are_independent(&platform).await;
    callbacks_of_other_flows_are_refused(&platform).await;
    flow_and_session_belong_to_a_project(&platform).await;
    session_cannot_be_fixed_or_forged(&platform).await;
    logout_needs_a_form_of_the_site(&platform).await;
    twenty_browsers_create_one_user(&platform).await;
}

/// A callback signs in once: neither the same browser nor a copy of it can repeat it.
async fn state_is_single_use(platform: &Platform) {
    let ada = platform.visitor("club");
    let callback = ada.approve("webaccount", "ada").await;
    let copy = ada.copy();
    assert_eq!(ada.get(&callback).await.status(), 303);
    assert!(ada.flows().is_empty());
    for browser in [&ada, &copy] {
        assert_eq!(browser.error_page(&callback).await.0, 400);
    }
    assert_eq!(copy.user().await, Value::Null);
    assert_eq!(ada.user().await["provider"], "webaccount");
    // One of several concurrent callbacks signs in.
    let eve = platform.visitor("club");
    let callback = eve.approve("messenger", "nameless").await;
    let browsers: Vec<Visitor> = (0..20).map(|_| eve.copy()).collect();
    let statuses = join_all(browsers.iter().map(async |browser| {
        loop {
            let status = browser.get(&callback).await.status();
            // All browsers have one address. While too many of its sign-ins are in progress, they repeat the request.
            if status != 503 {
                return status;
            }
        }
    }))
    .await;
    assert_eq!(statuses.iter().filter(|status| **status == 303).count(), 1, "{statuses:?}");
    assert!(statuses.iter().all(|status| [303, 400].contains(&status.as_u16())), "{statuses:?}");
    // A denial ends the flow, too.
    let authorize = ada.begin("codehost", "/").await;
    let denied = ada.submit(&authorize, &[]).await;
    assert_eq!(ada.error_page(&denied).await.0, 403);
    assert_eq!(ada.error_page(&denied.replace("error=access_denied", "code=x")).await.0, 400);
}

/// Login CSRF: a link with the attacker's code does nothing in the victim's browser.
async fn attacker_cannot_sign_a_victim_in(platform: &Platform) {
    let (attacker, victim) = (platform.visitor("club"), platform.visitor("club"));
    let link = attacker.approve("codehost", "grace-reused").await;
    assert_eq!(victim.error_page(&link).await.0, 400);
    assert_eq!(victim.user().await, Value::Null);
    // It does not disturb the victim's own flow either.
    let own = victim.approve("codehost", "ada").await;
    assert_eq!(victim.error_page(&link).await.0, 400);
    assert_eq!(victim.get(&own).await.status(), 303);
    assert_eq!(victim.user().await["name"], "Ada Lovelace");
    assert_eq!(victim.error_page(&link).await.0, 400);
    assert_eq!(victim.user().await["name"], "Ada Lovelace");
}

async fn tabs_are_independent(platform: &Platform) {
    let ada = platform.visitor("club");
    let (first, second) = (ada.begin("codehost", "/first").await, ada.begin("messenger", "/second").await);
    assert_eq!(ada.flows().len(), 2);
    let second = ada.submit(&second, &[("person", "ada")]).await;
    let first = ada.submit(&first, &[("person", "ada")]).await;
    for (callback, next, provider) in [(second, "/second", "messenger"), (first, "/first", "codehost")] {
        assert_eq!(ada.get(&callback).await.headers()["location"], next);
        assert_eq!(ada.user().await["provider"], provider);
    }
    // The browser keeps a limited number of flows, and the newest of them work.
    let mut authorize = Vec::new();
    for _ in 0..30 {
        authorize.push(ada.begin("codehost", "/").await);
    }
    assert!(ada.flows().len() <= 10, "{:?}", ada.flows());
    let callback = ada.submit(authorize.last().unwrap(), &[("person", "ada")]).await;
    assert_eq!(ada.get(&callback).await.status(), 303);
    let callback = ada.submit(&authorize[0], &[("person", "ada")]).await;
    assert_eq!(ada.error_page(&callback).await.0, 400);
}

async fn callbacks_of_other_flows_are_refused(platform: &Platform) {
    let ada = platform.visitor("club");
    let (one, two) = (ada.approve("webaccount", "ada").await, ada.approve("webaccount", "grace").await);
    let parameters = |callback: &str| {
        let url = Url::parse(&format!("http://localhost{callback}")).unwrap();
        let find = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
        (find("code"), find("state"))
    };
    let ((code_one, state_one), (code_two, state_two)) = (parameters(&one), parameters(&two));
    let path = "/__svc/auth/callback/webaccount";
    let messenger = "/__svc/auth/callback/messenger";
    let (id, secret) = state_one.split_once('.').unwrap_or((&state_one, ""));
    for callback in [
        // The code of the other tab does not match the PKCE challenge. The attempt ends both flows.
        format!("{path}?code={code_two}&state={state_one}"),
        format!("{path}?code={code_one}&state={state_two}"),
        format!("{messenger}?code={code_one}&state={state_one}"),
        format!("{path}?code={code_one}"),
        format!("{path}?state={state_one}"),
        format!("{path}?code={code_one}&state="),
        format!("{path}?code={code_one}&state={id}"),
        format!("{path}?code={code_one}&state={id}.{secret}x"),
        format!("{path}?code={code_one}&state={}", "a".repeat(5000)),
        format!("{path}?code={}&state={state_one}", "a".repeat(5000)),
        format!("{path}?code={code_one}&state={state_one}&state={state_two}"),
        format!("{path}?code=%ff&state=%ff"),
        format!("{path}?code={code_one}&state={state_one}%0d%0aset-cookie:a=b"),
        path.to_owned(),
    ] {
        let browser = ada.copy();
        let (status, _) = browser.error_page(&callback).await;
        assert!(status < 500 || status == 502, "{callback}");
        assert_eq!(browser.user().await, Value::Null, "{callback}");
    }
    assert_eq!(ada.get("/__svc/auth/callback/other?code=a&state=b").await.status(), 404);
}

async fn flow_and_session_belong_to_a_project(platform: &Platform) {
    let (club, other) = (platform.visitor("club"), platform.visitor("other"));
    let callback = club.approve("codehost", "ada").await;
    for (name, value) in club.cookies() {
        other.set_cookie(&name, &value);
    }
    assert_eq!(other.error_page(&callback).await.0, 400);
    assert_eq!(club.get(&callback).await.status(), 303);
    other.set_cookie(SESSION_COOKIE, &club.session_cookie().unwrap());
    assert_eq!(other.user().await, Value::Null);
    other.set_cookie(SESSION_COOKIE, &club.session_cookie().unwrap());
    assert_eq!(other.members_page().await, None);
}

async fn session_cannot_be_fixed_or_forged(platform: &Platform) {
    let attacker = platform.visitor("club");
    attacker.sign_in("messenger", "mallory").await;
    let planted = attacker.session_cookie().unwrap();
    // The victim signs in with the attacker's cookie in the browser: the session is a new one, and the planted one ends.
    let victim = platform.visitor("club");
    victim.set_cookie(SESSION_COOKIE, &planted);
    assert_eq!(victim.user().await["name"], "Mallory");
    victim.sign_in("webaccount", "ada").await;
    assert_ne!(victim.session_cookie().unwrap(), planted);
    assert_eq!(victim.user().await["name"], "Ada Lovelace");
    assert_eq!(attacker.user().await, Value::Null);
    // Over https, only the name that other hosts cannot set is read.
    let tossed = platform.visitor("club");
    tossed.set_cookie("svc_auth", &victim.session_cookie().unwrap());
    assert_eq!(tossed.user().await, Value::Null);
    let flow = attacker.approve("codehost", "grace").await;
    for (name, value) in attacker.cookies() {
        tossed.set_cookie(name.trim_start_matches("__Host-"), &value);
    }
    assert_eq!(tossed.error_page(&flow).await.0, 400);
    // Values that are not sessions, and the header with which the node passes a session to the worker.
    let cookie = victim.session_cookie().unwrap();
    let (token, time) = cookie.split_once('.').unwrap();
    for value in ["", ".", "x", token, &format!("{token}.x"), &format!("{}.{time}", "A".repeat(43)), &"x".repeat(3000)]
    {
        let visitor = platform.visitor("club");
        visitor.set_cookie(SESSION_COOKIE, value);
        assert_eq!(visitor.user().await, Value::Null, "{value}");
        visitor.set_cookie(SESSION_COOKIE, value);
        assert_eq!(visitor.members_page().await, None, "{value}");
    }
    for handle in ["", "x", token, &cookie] {
        let headers = [("svc-auth-session", handle), ("Svc-Auth-Session", handle)];
        let response = platform.visitor("club").send(Method::GET, "/members", &headers).await;
        assert_eq!(response.status(), 303, "{handle}");
    }
    // The database contains no token.
    let rows = platform.sql("club", "SELECT string_agg(s::text, ' ') FROM svc_auth.sessions s").await;
    assert!(!rows.is_empty() && !rows.contains(token), "{rows}");
}

async fn logout_needs_a_form_of_the_site(platform: &Platform) {
    const LOGOUT: &str = "/__svc/auth/logout";
    let ada = platform.visitor("club");
    ada.sign_in("codehost", "ada").await;
    let evil = [
        &[("origin", "https://evil.example")][..],
        &[("origin", "null")],
        &[("origin", "https://other-ada.apps.localhost")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", &ada.origin), ("sec-fetch-site", "cross-site")],
    ];
    for headers in evil {
        assert_eq!(ada.post_with(LOGOUT, &[], headers).await.status(), 403, "{headers:?}");
    }
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE] {
        let response = ada.send(method.clone(), LOGOUT, &[]).await;
        assert_eq!(
            (response.status(), &response.headers()["allow"]),
            (StatusCode::METHOD_NOT_ALLOWED, &"POST".parse().unwrap())
        );
    }
    let copy = ada.copy();
    assert_eq!(copy.user().await["name"], "Ada Lovelace");
    let response = ada.post(LOGOUT, &[]).await;
    assert_eq!((response.status().as_u16(), &response.headers()["location"]), (303, &"/".parse().unwrap()));
    assert_eq!((ada.session_cookie(), ada.user().await), (None, Value::Null));
    // The session has ended, not only its cookie.
    assert_eq!(copy.members_page().await, None);
    assert_eq!(copy.user().await, Value::Null);
    assert_eq!(ada.post(LOGOUT, &[]).await.status(), 303);
}

/// The first sign-ins of a person, with the same verified address at both OpenID providers.
async fn twenty_browsers_create_one_user(platform: &Platform) {
    assert_eq!(platform.sql("other", "SELECT count(*) FROM svc_auth.users").await, "0");
    let browsers: Vec<Visitor> = (0..20).map(|_| platform.visitor("other")).collect();
    let providers = ["webaccount", "messenger"].iter().cycle();
    let approve =
        browsers.iter().zip(providers).map(async |(browser, provider)| browser.approve(provider, "ada").await);
    let callbacks = join_all(approve).await;
    let sign_in = browsers.iter().zip(&callbacks).map(async |(browser, path)| browser.get(path).await.status());
    assert!(join_all(sign_in).await.iter().all(|status| *status == 303));
    let ids = join_all(browsers.iter().map(async |browser| browser.user().await["id"].clone())).await;
    assert!(ids.iter().all(|id| id.is_string() && *id == ids[0]), "{ids:?}");
    let counts = "SELECT (SELECT count(*) FROM svc_auth.users), (SELECT count(*) FROM svc_auth.identities)";
    assert_eq!(platform.sql("other", counts).await, "1|2");
    // An address that the provider did not verify, and the address of a code host, link to no user.
    for (provider, person, users) in [("messenger", "mallory", "2"), ("codehost", "ada", "3")] {
        platform.visitor("other").sign_in(provider, person).await;
        assert_eq!(platform.sql("other", "SELECT count(*) FROM svc_auth.users").await, users, "{person}");
    }
}
