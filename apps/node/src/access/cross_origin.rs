//! Requests that a page of another origin caused.
//!
//! `SameSite` does not separate hosts of one registrable domain: a page of one project can send a request to another
//! project, with the visitor's access cookie. Browsers state the page that caused a request in `Origin` and
//! `Sec-Fetch-Site`.

use actix_web::HttpRequest;
use actix_web::http::Method;
use actix_web::http::header::{ORIGIN, UPGRADE};

use crate::origin::authority;

/// Fetch Metadata Request Headers, section 2.4: `same-origin`, `same-site`, `cross-site`, or `none` for a request that
/// no page caused.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// Returns whether a page of another origin caused the request, and the request is more than a read: an upgrade, or a
/// method other than GET and HEAD. `scheme` is the scheme of the visitor's connection.
///
/// Reads stay possible, because links from other sites lead to GET requests. A page cannot read a response of another
/// origin unless that origin allows it (CORS), but it can read and write a WebSocket.
pub fn is_cross_origin_action(request: &HttpRequest, scheme: &str) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && !request.headers().contains_key(UPGRADE);
    !is_read && is_cross_origin(request, scheme)
}

/// Returns whether one of the two headers names another origin. Clients other than browsers send neither. Every browser
/// sends `Origin` with upgrades and with methods other than GET and HEAD, and `Sec-Fetch-Site` only over https and to
/// loopback.
fn is_cross_origin(request: &HttpRequest, scheme: &str) -> bool {
    let headers = request.headers();
    if headers.get_all(SEC_FETCH_SITE).any(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let is_same_origin = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
    headers.get_all(ORIGIN).any(|origin| match origin.as_bytes() {
        // A page that sends no referrer submits its forms with this value, even to its own origin.
        b"null" => !is_same_origin,
        origin => !is_origin_of(request, scheme, origin),
    })
}

/// Returns whether `origin` (RFC 6454 section 6.1) is the origin of the requested host: scheme, host and port are
/// equal.
fn is_origin_of(request: &HttpRequest, scheme: &str, origin: &[u8]) -> bool {
    let origin = str::from_utf8(origin).ok().and_then(|origin| origin.strip_prefix(scheme)?.strip_prefix("://"));
    let (Some(origin), Some(requested)) = (origin, authority(request)) else { return false };
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let [origin, requested] = [origin, requested].map(|it| it.strip_suffix(default_port).unwrap_or(it));
    origin.eq_ignore_ascii_case(requested)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HOST;
    use actix_web::test::TestRequest;

    use super::*;

    #[test]
    fn origin_is_compared_by_scheme_host_and_port() {
        let is_own = |scheme, host: &str, origin: &str| {
            let request = TestRequest::post().insert_header((HOST, host)).insert_header((ORIGIN, origin));
            !is_cross_origin_action(&request.to_http_request(), scheme)
        };
        for (scheme, host, origin) in [
            ("https", "a.example", "https://a.example"),
            ("https", "A.Example:443", "https://a.example"),
            ("https", "a.example:8443", "https://a.example:8443"),
            ("http", "a.example:80", "http://a.example"),
            ("http", "[::1]:8088", "http://[::1]:8088"),
        ] {
            assert!(is_own(scheme, host, origin), "{scheme} {host} {origin}");
        }
        for (scheme, host, origin) in [
            ("https", "a.example", "http://a.example"),
            ("http", "a.example", "https://a.example"),
            ("https", "a.example:80", "https://a.example"),
            ("https", "a.example", "https://a.example:80"),
            ("https", "a.example", "https://b.example"),
            ("https", "a.example", "https://example"),
            ("https", "a.example", "https://a.example.evil.example"),
            ("https", "a.example", "https://a.example/"),
            ("https", "a.example", "https://evil@a.example"),
            ("https", "a.example", "https://a.example https://b.example"),
            ("https", "a.example", "https:a.example"),
            ("https", "a.example", "a.example"),
            ("https", "a.example", "null"),
            ("https", "a.example", ""),
            ("http", "[::1]", "http://[::1]:8088"),
        ] {
            assert!(!is_own(scheme, host, origin), "{scheme} {host} {origin}");
        }
    }
}
