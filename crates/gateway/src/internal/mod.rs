//! The internal listener: the routes for nodes, and the metrics endpoint.

mod ai;
mod certificates;
mod git;
mod git_deploys;
mod id;
mod mail;
mod nodes;

use actix_web::web::Data;
use prometheus::{Encoder as _, Registry, TextEncoder};

use crate::authority::Open;
use crate::http::{Bytes, Routes};
use crate::problem::Problem;

/// Returns the routes of the internal listener.
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    nodes::routes(&mut routes);
    git::routes(&mut routes);
    mail::routes(&mut routes);
    let mut area = routes.area("internal", "Metrics.");
    area.get("metrics", "/metrics", metrics).summary("Get metrics in the Prometheus format");
    routes
}

async fn metrics(_: Open, registry: Data<Registry>) -> Result<Bytes, Problem> {
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    encoder.encode(&registry.gather(), &mut text).map_err(|error| Problem::internal(error.to_string()))?;
    Ok(Bytes::whole(encoder.format_type(), text))
}
