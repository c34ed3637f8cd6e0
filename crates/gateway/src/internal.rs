//! The internal listener: what nodes fetch, and what a collector scrapes.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::{Convergence, Desired};
use kernel::{Code, Digest};
use projects::Projects;
use prometheus::{Encoder as _, Registry, TextEncoder};
use serde::Deserialize;
use serde_json::json;

use crate::authority::{AsNode, Open};
use crate::http::{Bytes, Describe, Extract, Json, Operation, Path, Routes};
use crate::problem::Problem;

/// The routes of the internal listener.
#[must_use]
pub fn routes() -> Routes {
    let mut routes = Routes::default();
    routes.get("/internal/v1/desired", desired).summary("What the node is to serve, waiting for a change");
    routes.get("/internal/v1/bundles/{digest}", bundle).summary("A bundle that the node is to serve out of");
    routes.get("/metrics", metrics).summary("Measurements, for Prometheus");
    routes
}

/// Since when, and how long to wait.
#[derive(Debug, Deserialize)]
struct Since {
    #[serde(default)]
    since: i64,
    #[serde(default)]
    wait: u64,
}

impl Describe for Since {
    fn describe(operation: &mut Operation) {
        let number = json!({ "type": "integer", "minimum": 0, "default": 0 });
        operation.parameter("query", "since", "The revision that the node has; 0 for everything.", &number);
        operation.parameter("query", "wait", "Seconds to wait for a change; at most 30.", &number);
        // Waiting is what this request is for.
        operation.long = true;
        operation.code(&Code::BAD_REQUEST);
    }
}

impl Extract for Since {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        serde_urlencoded::from_str(request.query_string())
            .map_err(|error| Problem::bad_request(format!("since and wait must be whole numbers: {error}")))
    }
}

async fn desired(by: AsNode, nodes: Data<Convergence>, since: Since) -> Result<Json<Desired>, Problem> {
    Ok(Json(nodes.desired(by.node, since.since, Duration::from_secs(since.wait)).await?))
}

async fn bundle(
    by: AsNode,
    Path(digest): Path<Digest>,
    nodes: Data<Convergence>,
    projects: Data<Projects>,
) -> Result<Bytes, Problem> {
    nodes.bundle_for(by.node, digest).await?;
    let (length, bytes) = projects.bundle(digest).await?;
    Ok(Bytes::streamed("application/gzip", length, bytes))
}

async fn metrics(_: Open, registry: Data<Registry>) -> Result<Bytes, Problem> {
    let mut text = Vec::new();
    let encoder = TextEncoder::new();
    encoder.encode(&registry.gather(), &mut text).map_err(|error| Problem::internal(error.to_string()))?;
    Ok(Bytes::whole(encoder.format_type(), text))
}
