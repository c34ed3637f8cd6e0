//! What is refused before anything is looked up: too much, too long, or spelled in a way that has no single reading.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::HeaderMap;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, HttpRequest, web};
use kernel::Code;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::Problem;
use crate::protocol;

const HEADERS: usize = 64;
const HEADER_BYTES: usize = 16 * 1024;
const URI_BYTES: usize = 8 * 1024;

/// Room for the requests that are worked on at once.
#[derive(Debug, Clone)]
pub(crate) struct Room(pub(crate) Arc<Semaphore>);

/// A request's place there.
struct Seat {
    room: Arc<Semaphore>,
    place: RefCell<Option<OwnedSemaphorePermit>>,
}

impl Seat {
    fn take(room: Arc<Semaphore>) -> Option<Self> {
        let place = room.clone().try_acquire_owned().ok()?;
        Some(Self { room, place: RefCell::new(Some(place)) })
    }
}

/// Gives a request's place to others: slow clients would else take all of them.
pub(super) fn step_out(request: &HttpRequest) {
    if let Some(seat) = request.extensions().get::<Rc<Seat>>() {
        seat.place.take();
    }
}

/// Takes one again, if there is one.
pub(super) fn step_in(request: &HttpRequest) -> Result<(), Problem> {
    if let Some(seat) = request.extensions().get::<Rc<Seat>>() {
        let place = seat.room.clone().try_acquire_owned().map_err(|_| busy())?;
        seat.place.replace(Some(place));
    }
    Ok(())
}

fn busy() -> Problem {
    Problem::new(&Code::UNAVAILABLE, "the server is at its capacity; try again in a moment")
}

/// Refuses what must not reach a route. Past the server's capacity that is everything: 503 at once, never a queue.
///
/// # Errors
/// Never by itself; what the inner layers answer.
pub async fn guard(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    if let Err(problem) = acceptable(&request) {
        let answer = problem.respond(request.request());
        return Ok(request.into_response(answer));
    }
    // Whether the process is up is not a matter of how busy it is.
    if request.path() == "/healthz" {
        return Ok(next.call(request).await?.map_into_boxed_body());
    }
    let room = request.app_data::<web::Data<Room>>().map(|room| room.0.clone());
    let Some(room) = room else { return Ok(next.call(request).await?.map_into_boxed_body()) };
    let Some(seat) = Seat::take(room).map(Rc::new) else {
        let answer = busy().respond(request.request());
        return Ok(request.into_response(answer));
    };
    request.extensions_mut().insert(seat.clone());
    let response = next.call(request).await?.map_into_boxed_body();
    seat.place.take();
    Ok(response)
}

fn acceptable(request: &ServiceRequest) -> Result<(), Problem> {
    if request.uri().path_and_query().map_or(0, |uri| uri.as_str().len()) > URI_BYTES {
        return Err(Problem::new(&protocol::URI_TOO_LONG, "the address is longer than 8 KiB"));
    }
    if !is_modest(request.headers()) {
        let message = "send at most 64 headers of 16 KiB together";
        return Err(Problem::new(&protocol::HEADERS_TOO_LARGE, message));
    }
    match percent_decoded(request.uri().path()) {
        Some(path) if path.chars().any(char::is_control) => {
            Err(Problem::bad_request("the path holds control characters"))
        }
        Some(_) if has_needless_escape(request.uri().path()) => {
            Err(Problem::bad_request("the path escapes characters that need no escape: there is one spelling of it"))
        }
        Some(_) => Ok(()),
        None => Err(Problem::bad_request("the path is not UTF-8 text in valid percent encoding")),
    }
}

/// Whether there are no more headers than anybody needs.
pub(crate) fn is_modest(headers: &HeaderMap) -> bool {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    headers.len() <= HEADERS && bytes <= HEADER_BYTES
}

/// The text, percent encoding undone once; none when an escape is broken or what comes out is not UTF-8.
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

/// Whether an unreserved character (RFC 3986 section 2.3) is written as an escape.
fn has_needless_escape(path: &str) -> bool {
    path.split('%').skip(1).any(|rest| {
        let byte = rest.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte))
    })
}
