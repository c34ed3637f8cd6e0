//! Limits of requests over HTTP/2: the size of the head, the concurrent requests of a connection, and the time in which
//! the visitor reads nothing of a response.

use std::pin::Pin;
use std::time::Duration;

use actix_web::body::{BodySize, BodyStream, BoxBody, MessageBody as _, SizedStream};
use actix_web::http::{StatusCode, Version};
use actix_web::{HttpRequest, HttpResponse, rt};
use futures_util::stream;
use tls::Requests;

use crate::delivery::deliver;
use crate::page::{page, with_retry_after};

/// The size of a request's head, computed as in RFC 9113 section 6.5.2. actix has the same limit for HTTP/1.1.
const MAX_HEAD_BYTES: usize = 128 << 10;
const FIELD_OVERHEAD: usize = 32;

/// Returns whether the node terminated TLS for a request.
pub fn is_over_tls(request: &HttpRequest) -> bool {
    request.conn_data::<Requests>().is_some()
}

/// Responds to a request, unless it is over HTTP/2 and beyond a limit. A request over HTTP/2 ends if the client resets its
/// stream or closes the connection.
pub async fn limit(
    request: &HttpRequest,
    write_timeout: Duration,
    respond: impl Future<Output = HttpResponse>,
) -> HttpResponse {
    let requests = request.conn_data::<Requests>().filter(|_| request.version() == Version::HTTP_2);
    let Some(requests) = requests else { return respond.await };
    let guard = requests.begin(request);
    let response = if head_bytes(request) > MAX_HEAD_BYTES {
        let text = "The headers of the request are too large. Delete the cookies of this site, then try again.";
        page(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    } else if guard.is_refused() {
        let text = "This connection accepts no further requests now. Reload the page in a moment.";
        with_retry_after(page(StatusCode::SERVICE_UNAVAILABLE, text), Duration::ZERO)
    } else {
        match guard.respond(respond).await {
            Some(response) => response,
            // The response has no recipient.
            None => return HttpResponse::new(StatusCode::SERVICE_UNAVAILABLE),
        }
    };
    response.map_body(|_, body| guard.hold(end_unread(body, requests.clone(), write_timeout))).map_into_boxed_body()
}

/// Returns a body that ends with an error if a chunk is stalled. The write timeout of the connection does not apply to a
/// visitor who reads only other streams of the connection.
fn end_unread(body: BoxBody, requests: Requests, write_timeout: Duration) -> BoxBody {
    let size = body.size();
    if size.is_eof() {
        return body;
    }
    let mut body = match body.try_into_bytes() {
        Ok(bytes) => return BoxBody::new(bytes),
        Err(body) => body,
    };
    let chunks = stream::poll_fn(move |context| Pin::new(&mut body).poll_next(context));
    let expire = move || requests.clone().wait_until_stalled(write_timeout);
    let (chunks, delivery) = deliver(chunks, expire, Err("the visitor did not read the response".into()));
    rt::spawn(delivery);
    match size {
        BodySize::Sized(size) => BoxBody::new(SizedStream::new(size, chunks)),
        BodySize::None | BodySize::Stream => BoxBody::new(BodyStream::new(chunks)),
    }
}

fn head_bytes(request: &HttpRequest) -> usize {
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    let fields = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_OVERHEAD);
    path + fields.sum::<usize>()
}
