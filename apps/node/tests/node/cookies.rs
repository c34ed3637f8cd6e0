//! The access cookie: which bytes of a request count as one, and for which requests it counts.

use reqwest::Method;
use reqwest::header::{COOKIE, HeaderValue};
use serde_json::json;
use tokio::io::AsyncReadExt as _;

use crate::control_plane::{ControlPlane, sha256};
use crate::protected::{CALLBACK, HOST, cookie_of, site};
use crate::running::{Dir, RunningNode};
use crate::visitor::Visitor;

const KEY: &str = "svc_byp_key";

/// A node with a protected site without code, and a visitor's access cookie. If a write has access, its status is 405.
struct SignedIn {
    _core: ControlPlane,
    _dir: Dir,
    node: RunningNode,
    cookie: String,
}

impl SignedIn {
    async fn start() -> Self {
        let (core, dir) = (ControlPlane::start().await, Dir::new());
        let access = json!({ "mode": "org", "password": null, "bypass": sha256(KEY.as_bytes()), "version": 1 });
        let node = site(&core, &dir, access).await;
        core.allow_code("good", HOST, "shop");
        let cookie = cookie_of(&node.visitor.get(HOST, &format!("{CALLBACK}?code=good&next=%2F")).await);
        Self { _core: core, _dir: dir, node, cookie }
    }

    /// Returns the status of a request with these `Cookie` headers.
    async fn status_with_cookies(&self, cookies: &[&[u8]]) -> u16 {
        let request = self.node.visitor.request(Method::GET, HOST, "/");
        let cookies = cookies.iter().map(|cookie| HeaderValue::from_bytes(cookie).unwrap());
        Visitor::send(cookies.fold(request, |request, cookie| request.header(COOKIE, cookie))).await.status
    }

    /// Returns the status of a request with the access cookie and these headers.
    async fn status(&self, method: Method, host: &str, headers: &[(&str, &str)]) -> u16 {
        let request = self.node.visitor.request(method, host, "/").header(COOKIE, &self.cookie);
        Visitor::send(headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))).await.status
    }

    /// Returns the status line of a request for a WebSocket with the access cookie and this header.
    async fn upgrade(&self, header: &str) -> String {
        let request = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n");
        let mut socket = self.node.visitor.raw(&format!("{request}Cookie: {}\r\n{header}\r\n", self.cookie)).await;
        let mut status = [0; 12];
        socket.read_exact(&mut status).await.unwrap();
        String::from_utf8(status.to_vec()).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_is_found_among_foreign_bytes_and_other_cookies_of_its_name() {
    let site = SignedIn::start().await;
    let cookie = site.cookie.as_bytes();
    let with = |before: &[u8], after: &[u8]| [before, cookie, after].concat();
    for cookies in [
        with(b"theme=\xff\xfe; ", b""),
        with(b"\xc3(; ", b"; \x80=\x80"),
        with(b"; =; a; \"b=c; ", b";;"),
        with(b"__svc_access=; ", b"; __svc_access=\xff"),
        with(b"__svc_access=9999999999.00; __svc_access; ", b"; __svc_access=1.00"),
    ] {
        assert_eq!(site.status_with_cookies(&[&cookies]).await, 200, "{}", cookies.escape_ascii());
    }
    assert_eq!(site.status_with_cookies(&[b"a=\xff", cookie, b"__svc_access=1.00"]).await, 200);
    site.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_names_and_values_are_not_decoded() {
    let site = SignedIn::start().await;
    let (name, value) = site.cookie.split_once('=').unwrap();
    let encoded: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for cookie in [
        format!("%5F%5Fsvc_access={value}"),
        format!("__svc_acces%73={value}"),
        format!("{name}={encoded}"),
        format!("{name}=\"{value}\""),
        format!("{name} ={value}"),
        format!("{name}= {value}"),
        format!("__SVC_ACCESS={value}"),
        format!("\u{a0}{name}={value}"),
        format!("a={name}={value}"),
    ] {
        assert_eq!(site.status_with_cookies(&[cookie.as_bytes()]).await, 302, "{cookie}");
    }
    site.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_has_no_effect_on_writes_that_another_origin_caused() {
    let site = SignedIn::start().await;
    let own = "http://shop.localhost";
    let accepted: [&[(&str, &str)]; 7] = [
        &[],
        &[("origin", own)],
        &[("origin", own), ("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "same-origin")],
        &[("sec-fetch-site", "none")],
        // The page of this form sends no referrer.
        &[("origin", "null"), ("sec-fetch-site", "same-origin")],
        &[("origin", "http://b.localhost"), ("sec-fetch-site", "same-site"), ("svc-access-bypass", KEY)],
    ];
    for headers in accepted {
        assert_eq!(site.status(Method::POST, HOST, headers).await, 405, "{headers:?}");
    }
    let rejected: [&[(&str, &str)]; 15] = [
        &[("origin", "http://b.localhost")],
        &[("origin", "http://localhost")],
        &[("origin", "http://b.shop.localhost")],
        &[("origin", "http://shop.localhost.evil.example")],
        &[("origin", "https://shop.localhost")],
        &[("origin", "http://shop.localhost:8080")],
        &[("origin", "null")],
        &[("origin", "null"), ("sec-fetch-site", "none")],
        &[("origin", "")],
        &[("origin", own), ("origin", "http://b.localhost")],
        &[("origin", "http://b.localhost"), ("sec-fetch-site", "same-origin")],
        &[("origin", own), ("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "unknown")],
        &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
    ];
    for headers in rejected {
        assert_eq!(site.status(Method::POST, HOST, headers).await, 401, "{headers:?}");
    }
    let foreign = [("origin", "http://b.localhost")];
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "get", "QUERY"] {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert_eq!(site.status(method.clone(), HOST, &foreign).await, 401, "{method}");
        assert_eq!(site.status(method.clone(), HOST, &[("origin", own)]).await, 405, "{method}");
    }
    // The port is a part of the origin, and the default port is optional.
    for (host, origin) in [("shop.localhost:8088", "http://shop.localhost:8088"), ("SHOP.localhost:80", own)] {
        assert_eq!(site.status(Method::POST, host, &[("origin", origin)]).await, 405, "{host}");
    }
    assert_eq!(site.status(Method::POST, "shop.localhost:8088", &[("origin", own)]).await, 401);
    site.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cookie_counts_for_links_from_other_sites_but_not_for_their_websockets() {
    let site = SignedIn::start().await;
    let link = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    for headers in [&link[..], &[("sec-fetch-site", "same-site")], &[("origin", "http://b.localhost")]] {
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(site.status(method.clone(), HOST, headers).await, 200, "{method} {headers:?}");
        }
    }
    for header in ["", "Origin: http://shop.localhost\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
        assert_eq!(site.upgrade(header).await, "HTTP/1.1 200", "{header}");
    }
    for header in [
        "Origin: http://b.localhost\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
    ] {
        assert_eq!(site.upgrade(header).await, "HTTP/1.1 302", "{header}");
    }
    site.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn public_sites_accept_writes_of_every_origin() {
    let (core, dir) = (ControlPlane::start().await, Dir::new());
    let node = site(&core, &dir, json!({ "mode": "public", "password": null, "bypass": null, "version": 1 })).await;
    let request = node.visitor.request(Method::POST, HOST, "/");
    let request = request.header("origin", "http://b.localhost").header("sec-fetch-site", "cross-site");
    assert_eq!(Visitor::send(request).await.status, 405);
    node.stop().await;
}
