//! The response with the metrics.

use actix_web::HttpResponse;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::Data;
use prometheus::{Encoder as _, Registry, TextEncoder};

/// The handler of `GET /metrics`: the metrics in the text format of Prometheus.
pub async fn show_metrics(registry: Data<Registry>) -> HttpResponse {
    let (encoder, mut text) = (TextEncoder::new(), Vec::new());
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => HttpResponse::Ok().insert_header((CONTENT_TYPE, encoder.format_type())).body(text),
        Err(error) => {
            tracing::error!(%error, "failed to encode the metrics");
            HttpResponse::InternalServerError().finish()
        }
    }
}
