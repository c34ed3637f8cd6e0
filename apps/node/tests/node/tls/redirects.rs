//! The redirect from http to https, and the scheme of requests.

use reqwest::Method;
use sandbox::Certificate;

use super::{HOST, Rig};
use crate::visitor::Visitor;

#[tokio::test(flavor = "multi_thread")]
async fn host_with_a_certificate_redirects_to_https() {
    let (rig, _certificate) = Rig::start_with_certificate().await;
    let visitor = &rig.node.visitor;
    rig.core.deploy("plain", &[("assets/index.html", b"plain")]);
    visitor.sees("plain.localhost", "/", 200, "plain").await;
    let seen = visitor.get(HOST, "/a%20b?c=d").await;
    assert_eq!((seen.status, seen.header("location")), (308, "https://shop.localhost/a%20b?c=d"));
    assert_eq!(seen.header("cache-control"), "public, max-age=0, must-revalidate");
    // Over another port than the default one of http, the visitor is sent to the port of the listener.
    let seen = visitor.get("shop.localhost:8088", "/").await;
    assert_eq!(seen.header("location"), format!("https://shop.localhost:{}/", rig.address().port()));
    let posted = Visitor::send(visitor.request(Method::POST, HOST, "/form").body("x")).await;
    assert_eq!((posted.status, posted.header("location")), (308, "https://shop.localhost/form"));
    assert_eq!(visitor.get(HOST, "/__svc/node/health").await.body, "ok");
    assert_eq!(visitor.get("unknown.localhost", "/").await.status, 404);
    // A request for the server as a whole has no path.
    let options = format!("OPTIONS * HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
    let answer = visitor.raw_answer(&options).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 204 ") && answer.contains("\r\nallow: get, head, "), "{answer}");
    // The peer is not a trusted proxy.
    assert_eq!(visitor.get_with(HOST, "/", &[("x-forwarded-proto", "https")]).await.status, 308);
    rig.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trusted_proxy_states_the_scheme() {
    let rig = Rig::start_with(|config| config.proxies = "127.0.0.1/32".parse().unwrap()).await;
    let certificate = Certificate::generate_for(&[HOST]);
    rig.core.issue("shop", HOST, &certificate);
    rig.client(&[&certificate]).presents(HOST, &certificate).await;
    let visitor = &rig.node.visitor;
    visitor.sees(HOST, "/", 308, "").await;
    assert_eq!(visitor.get_with(HOST, "/", &[("x-forwarded-proto", "http")]).await.status, 308);
    for values in ["HTTPS", "http, https", "http,https"] {
        let seen = visitor.get_with(HOST, "/", &[("x-forwarded-proto", values)]).await;
        assert_eq!((seen.status, seen.body.as_str()), (200, "home"), "{values}");
    }
    // The visitor sent the first value.
    assert_eq!(visitor.get_with(HOST, "/", &[("x-forwarded-proto", "https, http")]).await.status, 308);
    rig.node.stop().await;
}
