//! Which headers pass between a visitor and a worker.

use actix_web::HttpRequest;
use actix_web::http::header::{CONNECTION, HeaderMap, UPGRADE};
use hyper::header::{HeaderMap as Passed, HeaderName, HeaderValue};

use super::definition::{KEY, SCHEME};
use crate::origin::Origin;

/// Of one connection, by RFC 9110 7.6.1; `Expect` has been answered.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "expect",
];
/// Between the visitor and the node, or told by the node alone.
const PRIVATE: [&str; 6] = ["svc-access-bypass", KEY, SCHEME, "host", "x-forwarded-for", "x-forwarded-proto"];

/// Whether the visitor asks for a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && named(headers).any(|name| name == "upgrade")
}

/// The headers of a request as the worker is to see them. `None` when one is not to be passed on.
pub fn of_request(request: &HttpRequest, Origin { client, scheme }: Origin) -> Option<Passed> {
    let headers = request.headers();
    let mut passed = Passed::new();
    let dropped: Vec<String> = named(headers).collect();
    for (name, value) in headers {
        let name = name.as_str();
        if HOP_BY_HOP.contains(&name) || PRIVATE.contains(&name) || dropped.iter().any(|it| it == name) {
            continue;
        }
        let value = if name == "cookie" { cookies(value.as_bytes()) } else { value.as_bytes().to_vec() };
        if name != "cookie" || !value.is_empty() {
            passed.append(HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_bytes(&value).ok()?);
        }
    }
    passed.insert(SCHEME, HeaderValue::from_static(scheme));
    passed.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    passed.insert("x-forwarded-for", HeaderValue::from_str(&client.to_string()).ok()?);
    let host = match request.uri().authority() {
        Some(authority) => HeaderValue::from_str(authority.as_str()),
        None => HeaderValue::from_bytes(headers.get("host")?.as_bytes()),
    };
    passed.insert("host", host.ok()?);
    if is_websocket(headers) {
        passed.insert("connection", HeaderValue::from_static("upgrade"));
        passed.insert("upgrade", HeaderValue::from_static("websocket"));
    }
    Some(passed)
}

/// The headers of an answer as the visitor is to see them. How the body comes is the front's to say.
pub fn of_answer(headers: &Passed) -> impl Iterator<Item = (&str, &[u8])> {
    let is_hop = |name: &str| HOP_BY_HOP.contains(&name) || name == "content-length";
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).filter(move |(name, _)| !is_hop(name))
}

/// What `Connection` names, in lowercase.
fn named(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(CONNECTION).filter_map(|value| value.to_str().ok());
    values.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase())
}

/// The cookies that are not the platform's.
fn cookies(value: &[u8]) -> Vec<u8> {
    let cookies = value.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let others = cookies.filter(|it| !it.starts_with(b"__svc_") && !it.starts_with(b"__Host-svc_"));
    others.collect::<Vec<_>>().join(&b"; "[..])
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn what_is_of_the_connection_or_the_platform_does_not_pass() {
        let request = TestRequest::with_uri("/x")
            .insert_header(("host", "shop.localhost"))
            .insert_header(("connection", "keep-alive, X-Private"))
            .insert_header(("x-private", "1"))
            .insert_header(("keep-alive", "1"))
            .insert_header(("te", "trailers"))
            .insert_header(("svc-access-bypass", "svc_byp_x"))
            .insert_header((KEY, "forged"))
            .insert_header((SCHEME, "ftp"))
            .insert_header(("x-forwarded-proto", "ftp"))
            .insert_header(("x-forwarded-for", "198.51.100.7"))
            .append_header(("cookie", "a=1; __Host-svc_access=x;__svc_b=2; c=3"))
            .append_header(("cookie", "__svc_only=1"))
            .insert_header(("x-kept", "yes"))
            .to_http_request();
        let origin = Origin { client: [192, 0, 2, 1].into(), scheme: "https" };
        let passed = of_request(&request, origin).unwrap();
        let mut passed: Vec<_> = passed.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        passed.sort_unstable();
        let expected = [
            ("cookie", "a=1; c=3"),
            ("host", "shop.localhost"),
            (SCHEME, "https"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x-kept", "yes"),
        ];
        assert_eq!(passed, expected);
    }
}
