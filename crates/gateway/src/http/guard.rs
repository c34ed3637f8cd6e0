//! Checks before routing: the sizes of URL and headers, the spelling of the path, and a permit of the concurrency limit.

use std::cell::RefCell;
use std::rc::Rc;

use actix_http::Request;
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::http::{Method, Version};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, web};
use kernel::Code;
use tls::{RequestGuard, Requests};

use super::concurrency_limit::{ConcurrencyLimit, Permit};
use crate::problem::Problem;
use crate::protocol;

const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 16 * 1024;
const MAX_URI_BYTES: usize = 8 * 1024;

/// A request's permit.
struct RequestPermit {
    limit: web::Data<ConcurrencyLimit>,
    permit: RefCell<Option<Permit>>,
}

/// Marks a request that its connection refuses: it has too many concurrent requests, or the server stops.
struct RefusedByConnection;

impl RequestPermit {
    fn take(limit: web::Data<ConcurrencyLimit>, method: &Method) -> Option<Self> {
        let permit = limit.acquire(method)?;
        Some(Self { limit, permit: RefCell::new(Some(permit)) })
    }
}

/// Releases the request's permit, so that slow clients and long polls cannot exhaust the limit.
pub(crate) fn release_permit(request: &HttpRequest) {
    if let Some(permit) = request.extensions().get::<Rc<RequestPermit>>() {
        permit.permit.take();
    }
}

/// Acquires a permit again. Returns whether one was free.
pub(super) fn reacquire_permit(request: &HttpRequest) -> bool {
    let extensions = request.extensions();
    let Some(permit) = extensions.get::<Rc<RequestPermit>>() else { return true };
    let acquired = permit.limit.acquire(request.method());
    let is_acquired = acquired.is_some();
    permit.permit.replace(acquired);
    is_acquired
}

/// Acquires a permit again, or returns [`busy`].
pub(super) fn require_permit(request: &HttpRequest) -> Result<(), Problem> {
    if reacquire_permit(request) { Ok(()) } else { Err(busy()) }
}

/// Returns the error of a request above the concurrency limit.
pub(super) fn busy() -> Problem {
    Problem::new(&Code::UNAVAILABLE, "the server is at capacity; try again in a moment")
}

/// Begins a request over HTTP/2 on a connection on which the server terminates TLS. If the connection refuses the
/// request, [`guard`] rejects it.
pub(super) fn begin(request: &Request) -> Option<RequestGuard> {
    let requests = request.conn_data::<Requests>().filter(|_| request.version() == Version::HTTP_2);
    let connection = requests?.begin(request);
    if connection.is_refused() {
        request.extensions_mut().insert(RefusedByConnection);
    }
    Some(connection)
}

/// Middleware that rejects requests before routing. Above the configured maximum of the concurrency limit, it responds
/// with 503 immediately, without a queue. The load shedder refuses most of these requests earlier. Also rejects requests
/// that their connection refuses.
///
/// # Errors
/// Returns the errors of the inner service.
pub async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if request.extensions().contains::<RefusedByConnection>() {
        let message = "this connection accepts no further requests now; try again on a new connection";
        let answer = Problem::new(&Code::UNAVAILABLE, message).respond(request.request());
        return Ok(request.into_response(answer));
    }
    admit(request, next).await
}

async fn admit(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if let Err(problem) = check_request(&request) {
        let answer = problem.respond(request.request());
        return Ok(request.into_response(answer));
    }
    // A server at capacity is still alive and ready, so health checks need no permit. Its metrics show the overload.
    if matches!(request.path(), "/healthz" | "/readyz" | "/metrics") {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let limit = request.app_data::<web::Data<ConcurrencyLimit>>().cloned();
    let Some(limit) = limit else { return Ok(next.call(request).await?.map_into_boxed_body()) };
    let Some(permit) = RequestPermit::take(limit, request.method()).map(Rc::new) else {
        let answer = busy().respond(request.request());
        return Ok(request.into_response(answer));
    };
    request.extensions_mut().insert(permit.clone());
    let response = next.call(request).await?.map_into_boxed_body();
    permit.permit.take();
    Ok(response)
}

fn check_request(request: &ServiceRequest) -> Result<(), Problem> {
    if request.uri().path_and_query().map_or(0, |uri| uri.as_str().len()) > MAX_URI_BYTES {
        return Err(Problem::new(&protocol::URI_TOO_LONG, "the URL is longer than 8 KiB"));
    }
    if !headers_within_limits(request.headers()) {
        return Err(headers_too_large());
    }
    match percent_decoded(request.uri().path()) {
        Some(path) if path.chars().any(char::is_control) => {
            Err(Problem::bad_request("the path contains control characters"))
        }
        Some(_) if has_needless_escape(request.uri().path()) => {
            Err(Problem::bad_request("the path percent-encodes unreserved characters; send them unencoded"))
        }
        Some(_) => Ok(()),
        None => Err(Problem::bad_request("the path is not UTF-8 text in valid percent encoding")),
    }
}

pub(super) fn headers_too_large() -> Problem {
    Problem::new(&protocol::HEADERS_TOO_LARGE, "send at most 64 headers, and at most 16 KiB of headers")
}

/// Returns whether the headers are within their limits.
pub(crate) fn headers_within_limits(headers: &HeaderMap) -> bool {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    headers.len() <= MAX_HEADERS && bytes <= MAX_HEADER_BYTES
}

/// Decodes percent encoding once. Returns `None` if an escape is invalid or the result is not UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

/// Returns whether an unreserved character (RFC 3986 section 2.3) is percent-encoded.
fn has_needless_escape(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| {
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    })
}
