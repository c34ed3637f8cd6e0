//! The internal listener: the metrics, and the health of the node.

use std::io;
use std::net::{SocketAddr, TcpListener};

use actix_web::dev::Server;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse, HttpServer};
use daemon::show_metrics;

use crate::metrics::Metrics;
use crate::queue::Queue;

/// Starts a server for `GET /metrics` and `GET /healthz`.
pub fn listen(address: SocketAddr, metrics: &Metrics, queue: Queue) -> io::Result<(SocketAddr, Server)> {
    let listener = TcpListener::bind(address)?;
    let (address, registry) = (listener.local_addr()?, metrics.registry());
    let app = move || {
        App::new()
            .app_data(Data::new(registry.clone()))
            .app_data(Data::new(queue.clone()))
            .route("/metrics", web::get().to(show_metrics))
            .route("/healthz", web::get().to(show_health))
    };
    Ok((address, HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run()))
}

/// Responds with 200 while the node has space for a mail, also during an outage of the control plane, when the node
/// refuses mail temporarily.
async fn show_health(queue: Data<Queue>) -> HttpResponse {
    if queue.has_space(0) {
        HttpResponse::Ok().body("ok\n")
    } else {
        HttpResponse::ServiceUnavailable().body("the queue has no space\n")
    }
}
