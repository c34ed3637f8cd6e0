//! The responses that the proxy sends instead of the origin.

use http_body_util::{Either, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};

/// The body of a response: the origin's, or a text of the proxy.
pub type Body = Either<Incoming, Full<Bytes>>;

/// The reason why the proxy did not forward a request or open a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The request is not one to a proxy.
    Malformed,
    /// The address is not permitted.
    Denied,
    /// No address of the name is permitted. The response is the same as for a name without addresses, so that a worker
    /// does not learn which names exist in the network of the node.
    DeniedName,
    /// The name has no address, or the name servers do not respond.
    Unresolved,
    /// The origin does not accept connections.
    Unreachable,
    /// The connection took too long.
    Timeout,
    /// The origin's certificate is not valid for the host, or the origin does not speak TLS.
    Tls,
    /// The origin closed the connection or violated HTTP.
    Lost,
}

impl Refusal {
    /// Returns the label of the metrics.
    pub const fn outcome(self) -> &'static str {
        match self {
            Self::Denied | Self::DeniedName => "denied",
            _ => "failed",
        }
    }

    /// Returns the response. The header `Proxy-Status` (RFC 9209) distinguishes it from a response of the origin.
    pub fn response(self) -> Response<Body> {
        let (status, error, text) = match self {
            Self::Malformed => (400, "http_request_error", "The request names no http or https URL."),
            Self::Denied => (
                403,
                "destination_ip_prohibited",
                "Workers can connect only to public addresses. This one is not public.",
            ),
            Self::DeniedName | Self::Unresolved => (502, "dns_error", "The name of the host has no public address."),
            Self::Unreachable => (502, "connection_refused", "The host does not accept connections at this port."),
            Self::Timeout => (504, "connection_timeout", "The host did not accept the connection in time."),
            Self::Tls => (502, "tls_certificate_error", "The host has no valid certificate, or does not support TLS."),
            Self::Lost => (502, "connection_terminated", "The host closed the connection or sent an invalid response."),
        };
        let mut response = Response::new(Either::Right(Full::from(text)));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Ok(value) = HeaderValue::from_str(&format!("svc-node; error={error}")) {
            headers.insert("proxy-status", value);
        }
        response
    }
}
