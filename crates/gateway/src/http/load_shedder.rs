//! Load shedding: the refusal of new requests above the concurrency limit.
//!
//! It runs at the listener, before the application. A refused request has no request id, span or log line, and its
//! response is rendered once. Refusals must cost little, because the other requests need the processor.

use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use actix_http::Request;
use actix_service::{Service, ServiceFactory, apply_fn_factory};
use actix_web::body::{BoxBody, MessageBody as _};
use actix_web::dev::ServiceResponse;
use actix_web::http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, HeaderName, HeaderValue, ORIGIN,
};
use actix_web::http::{ConnectionType, Method, Version};
use actix_web::web::Data;
use actix_web::{Error, HttpMessage as _, HttpResponse};
use futures_util::StreamExt as _;
use futures_util::future::Either;
use opentelemetry::metrics::Counter;
use tokio::time::timeout;

use super::body::{DEFAULT_LIMIT, declared_length};
use super::concurrency_limit::ConcurrencyLimit;
use super::guard::{begin, busy};
use super::node_wait::Shutdown;
use super::static_responses::{StaticResponse, StaticResponses};
use super::telemetry::add_default_headers;
use crate::config::{Config, allows_every_origin};
use crate::problem::{EnvelopeFormat, ErrorFormat, ErrorFormats, find_by_prefix};

/// The request id of all refused requests. No log line contains it.
const REFUSED_ID: &str = "refused";

/// How long a refused request may take to send the rest of its body.
const BODY_TIMEOUT: Duration = Duration::from_millis(50);

static REFUSED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    let meter = opentelemetry::global::meter("svc");
    meter.u64_counter("svc.http.requests.refused").with_description("Requests above the concurrency limit").build()
});

/// Refuses requests of one worker thread.
pub(crate) struct LoadShedder {
    limit: Data<ConcurrencyLimit>,
    shutdown: Data<Shutdown>,
    static_responses: Data<StaticResponses>,
    dashboard_origin: String,
    envelope: StaticResponse,
    /// The responses in other error formats, by prefix of the path.
    other_formats: Vec<(&'static str, StaticResponse)>,
}

impl LoadShedder {
    pub(crate) fn new(
        limit: Data<ConcurrencyLimit>,
        shutdown: Data<Shutdown>,
        static_responses: Data<StaticResponses>,
        config: &Config,
        formats: &ErrorFormats,
    ) -> Self {
        let render = |format: &dyn ErrorFormat| render(format, config.is_https());
        // An alert needs the series before the first refusal.
        REFUSED.add(0, &[]);
        Self {
            limit,
            shutdown,
            static_responses,
            dashboard_origin: config.dashboard_origin(),
            envelope: render(&EnvelopeFormat),
            other_formats: formats.0.iter().map(|(prefix, format)| (*prefix, render(*format))).collect(),
        }
    }

    /// Returns whether a request must be refused. A server at capacity is still alive and ready, so health checks are
    /// not. Neither are preflight requests of browsers, which need no permit.
    fn must_refuse(&self, request: &Request) -> bool {
        self.limit.is_reached(request.method())
            && request.method() != Method::OPTIONS
            && request.path() != "/readyz"
            && !self.static_responses.contains(request.path())
    }

    async fn refuse(self: Rc<Self>, mut request: Request) -> HttpResponse {
        REFUSED.add(1, &[]);
        self.limit.record_refusal();
        let response = self.response(&request);
        if request.version() != Version::HTTP_2 {
            discard_body(&mut request).await;
        }
        response
    }

    fn response(&self, request: &Request) -> HttpResponse {
        let path = request.path();
        let mut response = find_by_prefix(&self.other_formats, path).unwrap_or(&self.envelope).respond();
        if self.shutdown.has_begun() {
            response.head_mut().set_connection_type(ConnectionType::Close);
        }
        let origin = request.headers().get(ORIGIN);
        if let Some(origin) = origin.filter(|origin| allows_every_origin(path) || **origin == *self.dashboard_origin) {
            response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
        response
    }
}

fn render(format: &dyn ErrorFormat, is_https: bool) -> StaticResponse {
    let (mut head, body) = format.render(&busy(), REFUSED_ID).into_parts();
    add_default_headers(head.headers_mut(), is_https);
    let headers = [
        (HeaderName::from_static("x-request-id"), REFUSED_ID),
        (ACCESS_CONTROL_EXPOSE_HEADERS, "retry-after, x-request-id"),
    ];
    for (name, value) in headers {
        head.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    #[expect(clippy::expect_used, reason = "error formats render the whole body")]
    let body = body.try_into_bytes().expect("a body of bytes");
    StaticResponse::new(&head, body)
}

/// Reads the rest of a small body. Otherwise, the connection would be closed after the response, as it is after a large or
/// late body.
async fn discard_body(request: &mut Request) {
    if declared_length(request.headers()).is_some_and(|length| length > DEFAULT_LIMIT) {
        return;
    }
    let mut payload = request.take_payload();
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(chunk)) = payload.next().await {
            bytes += chunk.len();
            if bytes > DEFAULT_LIMIT {
                break;
            }
        }
    };
    // If the body is late, actix closes the connection.
    let _ = timeout(BODY_TIMEOUT, read).await;
}

/// Refuses the requests of an application above the concurrency limit. Every request over HTTP/2 is in progress until its
/// response is sent, even if it is refused or a middleware responds to it.
pub(crate) fn shed_load<S>(
    shedder: LoadShedder,
    app: S,
) -> impl ServiceFactory<
    Request,
    Config = S::Config,
    Response = HttpResponse,
    Error = Error,
    InitError = S::InitError,
    Service: Service<Request, Future: 'static> + 'static,
    Future: 'static,
>
where
    S: ServiceFactory<
            Request,
            Response = ServiceResponse<BoxBody>,
            Error = Error,
            Service: Service<Request, Future: 'static> + 'static,
            Future: 'static,
        > + 'static,
{
    let shedder = Rc::new(shedder);
    apply_fn_factory(app, move |request: Request, app: &S::Service| {
        let connection = begin(&request);
        let response = if shedder.must_refuse(&request) {
            Either::Left(Rc::clone(&shedder).refuse(request))
        } else {
            Either::Right(app.call(request))
        };
        async move {
            let response = match response {
                Either::Left(refused) => Ok(refused.await),
                Either::Right(served) => served.await.map(HttpResponse::from),
            };
            response.map(|response| match connection {
                Some(connection) => response.map_body(|_, body| connection.hold(body)).map_into_boxed_body(),
                None => response,
            })
        }
    })
}
