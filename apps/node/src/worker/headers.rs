//! The headers that are forwarded between visitors and workers.

use actix_web::HttpRequest;
use actix_web::http::header::{CONNECTION, COOKIE, HeaderMap, UPGRADE};
use hyper::header::{HeaderMap as WorkerHeaders, HeaderName, HeaderValue};

use super::bindings::{BINDING_HEADER, KEY_HEADER};
use super::definition::SCHEME_HEADER;
use crate::auth::HANDLE_HEADER;
use crate::origin::{Origin, authority};

/// Hop-by-hop headers (RFC 9110 7.6.1). `Expect` is included because the front responds to it.
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
/// Request headers that the node consumes or sets itself.
const PRIVATE: [&str; 9] = [
    "svc-access-bypass",
    KEY_HEADER,
    BINDING_HEADER,
    SCHEME_HEADER,
    HANDLE_HEADER,
    "cookie",
    "host",
    "x-forwarded-for",
    "x-forwarded-proto",
];
/// Other request headers from which common libraries read the visitor's address. They are removed, because visitors can
/// send them, and proxies usually forward them unchanged.
const CLIENT_ADDRESS: [&str; 20] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "do-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "true-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-nf-client-connection-ip",
    "x-original-forwarded-for",
    "x-real-ip",
    "x-vercel-forwarded-for",
];

/// Returns whether the request asks for a WebSocket.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
        && connection_headers(headers).any(|name| name == "upgrade")
}

/// Returns the headers of the request to the worker, with the handle of the visitor's session. Returns `None` if a header
/// cannot be forwarded.
pub fn to_worker(
    request: &HttpRequest,
    Origin { client, scheme }: Origin,
    session: Option<&[u8]>,
) -> Option<WorkerHeaders> {
    let headers = request.headers();
    let mut forwarded = WorkerHeaders::new();
    let dropped: Vec<String> = connection_headers(headers).collect();
    for (name, value) in headers {
        let name = name.as_str();
        let is_removed = [HOP_BY_HOP.as_slice(), &PRIVATE, &CLIENT_ADDRESS].iter().any(|names| names.contains(&name));
        if is_removed || dropped.iter().any(|it| it == name) {
            continue;
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        forwarded.append(HeaderName::from_bytes(name.as_bytes()).ok()?, value);
    }
    let cookies = project_cookies(headers);
    if !cookies.is_empty() {
        forwarded.insert("cookie", HeaderValue::from_bytes(&cookies).ok()?);
    }
    forwarded.insert(SCHEME_HEADER, HeaderValue::from_static(scheme));
    forwarded.insert("x-forwarded-proto", HeaderValue::from_static(scheme));
    forwarded.insert("x-forwarded-for", HeaderValue::from_str(&client.to_string()).ok()?);
    forwarded.insert("host", HeaderValue::from_str(authority(request)?).ok()?);
    if let Some(session) = session {
        forwarded.insert(HANDLE_HEADER, HeaderValue::from_bytes(session).ok()?);
    }
    if is_websocket(headers) {
        forwarded.insert("connection", HeaderValue::from_static("upgrade"));
        forwarded.insert("upgrade", HeaderValue::from_static("websocket"));
    }
    Some(forwarded)
}

/// Returns the headers of the response to the visitor. The front sets the headers that describe the body's transfer.
pub fn to_visitor(headers: &WorkerHeaders) -> impl Iterator<Item = (&str, &[u8])> {
    let is_hop = |name: &str| HOP_BY_HOP.contains(&name) || name == "content-length";
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).filter(move |(name, _)| !is_hop(name))
}

/// Returns the header names in `Connection`, in lowercase.
fn connection_headers(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(CONNECTION).filter_map(|value| value.to_str().ok());
    values.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase())
}

/// Returns the cookies except the platform's, as one header (RFC 9113 section 8.2.3).
fn project_cookies(headers: &HeaderMap) -> Vec<u8> {
    let cookies = headers.get_all(COOKIE).flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let cookies = cookies.map(<[u8]>::trim_ascii).filter(|cookie| !cookie.is_empty());
    let is_platform = |it: &&[u8]| {
        // The last two are the cookies of app user auth on plain http.
        [b"__svc_".as_slice(), b"__Host-svc_", b"svc_auth=", b"svc_auth_flow_"].iter().any(|name| it.starts_with(name))
    };
    let others = cookies.filter(|it| !is_platform(it));
    others.collect::<Vec<_>>().join(&b"; "[..])
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn hop_by_hop_and_platform_headers_are_removed() {
        let request = TestRequest::with_uri("/x")
            .insert_header(("host", "shop.localhost"))
            .insert_header(("connection", "keep-alive, X-Private"))
            .insert_header(("x-private", "1"))
            .insert_header(("keep-alive", "1"))
            .insert_header(("te", "trailers"))
            .insert_header(("svc-access-bypass", "svc_byp_x"))
            .insert_header((KEY_HEADER, "forged"))
            .insert_header((BINDING_HEADER, "forged"))
            .insert_header((SCHEME_HEADER, "ftp"))
            .insert_header(("x-forwarded-proto", "ftp"))
            .insert_header(("x-forwarded-for", "198.51.100.7"))
            .append_header(("cookie", "a=1; __Host-svc_access=x;__svc_b=2; c=3"))
            .append_header(("cookie", "__svc_only=1; svc_auth=x; svc_auth_flow_1=x; svc_authx=1"))
            .insert_header((HANDLE_HEADER, "forged"))
            .insert_header(("x-kept", "yes"));
        let addresses = "cf-connecting-ip cf-connecting-ipv6 cf-pseudo-ipv4 do-connecting-ip fastly-client-ip fly-client-ip \
            forwarded forwarded-for true-client-ip x-appengine-user-ip x-azure-clientip x-azure-socketip x-client-ip \
            x-cluster-client-ip x-envoy-external-address x-forwarded x-nf-client-connection-ip x-original-forwarded-for \
            x-real-ip x-vercel-forwarded-for";
        let request = addresses.split(' ').fold(request, |it, name| it.insert_header((name, "198.51.100.7")));
        let request = request.to_http_request();
        let origin = Origin { client: [192, 0, 2, 1].into(), scheme: "https" };
        assert_eq!(to_worker(&request, origin, Some(b"x")).unwrap().get(HANDLE_HEADER).unwrap(), "x");
        let forwarded = to_worker(&request, origin, None).unwrap();
        let mut forwarded: Vec<_> =
            forwarded.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        forwarded.sort_unstable();
        let expected = [
            ("cookie", "a=1; c=3; svc_authx=1"),
            ("host", "shop.localhost"),
            (SCHEME_HEADER, "https"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "https"),
            ("x-kept", "yes"),
        ];
        assert_eq!(forwarded, expected);
    }
}
