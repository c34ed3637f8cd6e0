//! The node's metrics, and the listener that serves them to Prometheus.

use std::io;
use std::net::{SocketAddr, TcpListener};

use actix_web::dev::Server;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use prometheus::{Encoder as _, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};

/// The metrics. Clones share their values.
#[derive(Clone)]
pub struct Metrics {
    /// Whether workers run with a protection: 1 or 0. Empty on a node that does not run worker code.
    pub worker_protections: IntGaugeVec,
    /// The connections that workers requested, by outcome.
    pub egress_connections: IntCounterVec,
    registry: Registry,
}

impl Metrics {
    /// Creates the metrics. Fails only if two have one name.
    pub fn new() -> Result<Self, prometheus::Error> {
        let protections = Opts::new("svc_node_worker_protection", "Whether workers run with a protection: 1 or 0");
        let connections =
            Opts::new("svc_node_egress_connections_total", "Connections that workers requested, by outcome");
        let worker_protections = IntGaugeVec::new(protections, &["protection"])?;
        let egress_connections = IntCounterVec::new(connections, &["outcome"])?;
        let registry = Registry::new();
        registry.register(Box::new(worker_protections.clone()))?;
        registry.register(Box::new(egress_connections.clone()))?;
        Ok(Self { worker_protections, egress_connections, registry })
    }
}

/// Starts to serve `GET /metrics`.
pub fn listen(address: SocketAddr, metrics: Metrics) -> io::Result<(SocketAddr, Server)> {
    let listener = TcpListener::bind(address)?;
    let (address, registry) = (listener.local_addr()?, metrics.registry);
    let app = move || App::new().app_data(Data::new(registry.clone())).route("/metrics", web::get().to(show));
    Ok((address, HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run()))
}

async fn show(registry: Data<Registry>) -> HttpResponse {
    let (encoder, mut text) = (TextEncoder::new(), Vec::new());
    match encoder.encode(&registry.gather(), &mut text) {
        Ok(()) => HttpResponse::Ok().insert_header((CONTENT_TYPE, encoder.format_type())).body(text),
        Err(error) => {
            tracing::error!(%error, "failed to encode the metrics");
            HttpResponse::InternalServerError().finish()
        }
    }
}
