//! The outermost layer: the request's id, its span, its measurement, and the headers that every answer carries.

use std::sync::LazyLock;
use std::time::Instant;

use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage as _, web};
use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use opentelemetry::propagation::Extractor;
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{Fixed, Matched};
use crate::config::Config;
use crate::limits::Standing;
use crate::problem::{Problem, Rendered};
use crate::request_id::RequestId;

static DURATION: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    opentelemetry::global::meter("svc")
        .f64_histogram("svc.http.request.duration")
        .with_unit("s")
        .with_description("Requests answered")
        .with_boundaries(vec![0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0])
        .build()
});

/// What every answer says, the last of it over HTTPS alone.
static DEFAULTS: LazyLock<[(HeaderName, HeaderValue); 5]> = LazyLock::new(|| {
    [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::CACHE_CONTROL, "no-store"),
        (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
    ]
    .map(|(name, value)| (name, HeaderValue::from_static(value)))
});

/// Observes a request from its arrival to its answer.
///
/// # Errors
/// Never by itself; what the inner layers answer.
pub async fn observe(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let since = Instant::now();
    let world = request.app_data::<web::Data<kernel::World>>().cloned();
    let world = world.unwrap_or_else(|| web::Data::new(kernel::World::system()));
    let id = RequestId::of(&request, &world);
    let https = request.app_data::<web::Data<Config>>().is_some_and(|config| config.is_https());
    let method = request.method().clone();
    let place = Fixed::place(&request);
    let kept = place.as_ref().and_then(|(fixed, path)| Some((fixed.get(path)?, *path)));
    let (mut response, route, span) = match kept {
        // Nothing is done that could say anything, and so there is no span.
        Some((answer, path)) => (request.into_response(answer), path, Span::none()),
        None => {
            request.extensions_mut().insert(id.clone());
            let span = span(&request, &id, &method);
            let response = enveloped(next.call(request).instrument(span.clone()).await?);
            let route = Matched::of(response.request()).map_or("-", |matched| matched.pattern);
            let response = match place {
                Some((fixed, path)) => {
                    let (request, response) = response.into_parts();
                    ServiceResponse::new(request, fixed.keep(path, response))
                }
                None => response,
            };
            (response, route, span)
        }
    };
    let status = response.status().as_u16();
    dress(&mut response, &id, https);
    let seconds = since.elapsed().as_secs_f64();
    let labels = [
        KeyValue::new("method", known(&method)),
        KeyValue::new("route", route),
        KeyValue::new("status", i64::from(status)),
    ];
    DURATION.record(seconds, &labels);
    let ms = (seconds * 1e3).round();
    if span.is_none() {
        tracing::info!(request_id = id.as_str(), %method, route, status, ms, "answered");
    } else {
        span.in_scope(|| tracing::info!(route, status, ms, "answered"));
    }
    Ok(response)
}

/// What the lines of a request's log have in common, and its part of the caller's trace.
fn span(request: &ServiceRequest, id: &RequestId, method: &Method) -> Span {
    // At this level, so that even a filter that wants errors alone keeps the id on its lines.
    let span = tracing::error_span!("request", otel.kind = "server", request_id = id.as_str(), %method);
    if request.headers().contains_key("traceparent") {
        let headers = Headers(request.headers());
        let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&headers));
        if let Err(error) = span.set_parent(parent) {
            tracing::trace!(%error, "no tracer takes the caller's trace");
        }
    }
    span
}

/// The method as a label: made-up ones are one, or a client could make as many series as it likes.
fn known(method: &Method) -> &'static str {
    let methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    methods.into_iter().find(|name| *name == method.as_str()).unwrap_or("other")
}

/// Renders a failure that another layer answered in its own way in the error format of its path.
fn enveloped(response: ServiceResponse<impl MessageBody + 'static>) -> ServiceResponse<BoxBody> {
    let status = response.status();
    let is_json = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let is_rendered = response.response().extensions().get::<Rendered>().is_some();
    if (status.is_client_error() || status.is_server_error()) && !is_json && !is_rendered {
        let problem = if status.is_client_error() {
            Problem::bad_request(status.canonical_reason().unwrap_or("the request was refused"))
        } else {
            Problem::internal(format!("answered {status} without an envelope"))
        };
        let answer = problem.respond(response.request());
        return response.into_response(answer);
    }
    response.map_into_boxed_body()
}

/// The headers that every answer carries, unless it has its own.
fn dress(response: &mut ServiceResponse<BoxBody>, id: &RequestId, https: bool) {
    let standing = response.request().extensions().get::<Standing>().cloned();
    let headers = response.headers_mut();
    for (name, value) in DEFAULTS.iter().take(if https { DEFAULTS.len() } else { DEFAULTS.len() - 1 }) {
        if !headers.contains_key(name) {
            headers.insert(name.clone(), value.clone());
        }
    }
    let mut own = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value)
            && !headers.contains_key(&name)
        {
            headers.insert(name, value);
        }
    };
    own(HeaderName::from_static("x-request-id"), id.as_str());
    if let Some(Standing { policy, state }) = standing {
        own(HeaderName::from_static("ratelimit-policy"), &policy);
        own(HeaderName::from_static("ratelimit"), &state);
    }
}

/// The caller's trace context. actix has another version of the header types than OpenTelemetry.
struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
