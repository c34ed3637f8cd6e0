//! The outermost middleware: the request's id, its span, its metrics, and the headers of every response.

use std::sync::LazyLock;
use std::time::Instant;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{ConnectionType, Method};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, web};
use kernel::error_chain;
use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use opentelemetry::propagation::Extractor;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::cors::refused_preflight;
use super::{RouteMatch, Shutdown, StaticResponses};
use crate::config::Config;
use crate::limits::RateLimitHeaders;
use crate::problem::{Problem, RenderedMarker};
use crate::request_id::RequestId;

static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.http.request.duration")
        .with_unit("s")
        .with_description("Duration of HTTP requests")
        .with_boundaries(vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0])
        .build()
});

/// The headers of every response. The last one is sent only over HTTPS.
static DEFAULT_HEADERS: LazyLock<[(HeaderName, HeaderValue); 5]> = LazyLock::new(|| {
    [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
});

/// Adds the headers of every response that are missing.
pub(super) fn add_default_headers(headers: &mut HeaderMap, is_https: bool) {
    let all = DEFAULT_HEADERS.len();
    for (name, value) in DEFAULT_HEADERS.iter().take(if is_https { all } else { all - 1 }) {
        if !headers.contains_key(name) {
            headers.insert(name.clone(), value.clone());
        }
    }
}

/// Middleware that logs and measures a request and sets the default headers of its response.
///
/// # Errors
/// Returns the errors of the inner service.
pub async fn request_telemetry(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let started = Instant::now();
    let clock_rng = request.app_data::<web::Data<kernel::ClockRng>>().cloned();
    let clock_rng = clock_rng.unwrap_or_else(|| web::Data::new(kernel::ClockRng::system()));
    let id = RequestId::of(&request, &clock_rng);
    let is_https = request.app_data::<web::Data<Config>>().is_some_and(|config| config.is_https());
    let method = request.method().clone();
    let static_key = StaticResponses::key(&request);
    let stored = static_key.as_ref().and_then(|(responses, path)| Some((responses.get(path)?, *path)));
    let (mut response, route, span) = match stored {
        // No handler runs, so there would be nothing in a span.
        Some((answer, path)) => (request.into_response(answer), path, Span::none()),
        None => {
            request.extensions_mut().insert(id.clone());
            let span = span(&request, &id, &method);
            let response = ensure_envelope(next.call(request).instrument(span.clone()).await?);
            let route = RouteMatch::of(response.request()).map_or("-", |matched| matched.pattern);
            let response = match static_key {
                Some((responses, path)) => {
                    let (request, response) = response.into_parts();
                    ServiceResponse::new(request, responses.store(path, response))
                }
                None => response,
            };
            (response, route, span)
        }
    };
    let status = response.status().as_u16();
    set_default_headers(&mut response, &id, is_https);
    let seconds = started.elapsed().as_secs_f64();
    let labels = [
        KeyValue::new("method", method_label(&method)),
        KeyValue::new("route", route),
        KeyValue::new("status", i64::from(status)),
    ];
    DURATION.record(seconds, &labels);
    let ms = (seconds * 1e3).round();
    if span.is_none() {
        tracing::info!(request_id = id.as_str(), %method, route, status, ms, "request completed");
    } else {
        span.in_scope(|| tracing::info!(route, status, ms, "request completed"));
    }
    Ok(response)
}

/// Creates the span of a request, as a child of the caller's trace. It has the common fields of the request's log
/// lines.
fn span(request: &ServiceRequest, id: &RequestId, method: &Method) -> Span {
    // The span has the level error, so that a filter for errors still shows the request id.
    let span = tracing::error_span!("request", otel.kind = "server", request_id = id.as_str(), %method);
    if request.headers().contains_key("traceparent") {
        let headers = HeaderExtractor(request.headers());
        let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&headers));
        if let Err(error) = span.set_parent(parent) {
            tracing::trace!(error = %error_chain(&error), "failed to set the parent span");
        }
    }
    span
}

/// Returns the method as a metric label. Unknown methods share one label, so that clients cannot create new series.
fn method_label(method: &Method) -> &'static str {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    methods.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

/// Renders the errors of other layers in the error format of the request's path.
fn ensure_envelope(response: ServiceResponse<impl MessageBody + 'static>) -> ServiceResponse<BoxBody> {
    let status = response.status();
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_rendered = response.response().extensions().get::<RenderedMarker>().is_some();
    if (status.is_client_error() || status.is_server_error()) && !is_json && !is_rendered {
        let problem = if let Some(refused) = refused_preflight(&response) {
            refused
        } else if status.is_client_error() {
            Problem::bad_request(status.canonical_reason().unwrap_or("the request was rejected"))
        } else {
            Problem::internal(format!("a layer returned {status} without an envelope"))
        };
        let answer = problem.respond(response.request());
        return response.into_response(answer);
    }
    response.map_into_boxed_body()
}

/// Adds the default headers that the response lacks.
fn set_default_headers(response: &mut ServiceResponse<BoxBody>, id: &RequestId, is_https: bool) {
    let rate_limit = response.request().extensions().get::<RateLimitHeaders>().cloned();
    if response.request().app_data::<web::Data<Shutdown>>().is_some_and(|shutdown| shutdown.has_begun()) {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    let headers = response.headers_mut();
    add_default_headers(headers, is_https);
    let mut add = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value)
            && !headers.contains_key(&name)
        {
            headers.insert(name, value);
        }
    };
    add(HeaderName::from_static("x-request-id"), id.as_str());
    if let Some(RateLimitHeaders { policy, state }) = rate_limit {
        add(HeaderName::from_static("ratelimit-policy"), &policy);
        add(HeaderName::from_static("ratelimit"), &state);
    }
}

/// The caller's trace context. actix and OpenTelemetry use different versions of the header types.
struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
