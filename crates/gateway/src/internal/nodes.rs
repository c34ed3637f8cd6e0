//! The routes for nodes.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::web::Data;
use convergence::{Convergence, ConvergenceError};
use kernel::{Code, Digest};
use projects::Projects;
use protocol::{Batch, Desired, NodeInfo, Receipt, RedeemRequest, RedeemResult};
use serde::Deserialize;
use serde_json::json;

use crate::authority::NodeCaller;
use crate::http::{
    Body, Bytes, Describe, Extract, Json, NoContent, Operation, Path, Routes, path_parameters, release_permit,
};
use crate::problem::Problem;

pub(super) fn routes(routes: &mut Routes) {
    let mut area = routes.area("nodes", "Desired state, bundles and reports of nodes.");
    area.get("desired", "/internal/v1/desired", desired)
        .summary("Get the desired state of the node, or wait for a change");
    area.get("bundle", "/internal/v1/bundles/{digest}", bundle).summary("Download a bundle that the node serves");
    area.post("report", "/internal/v1/reports", report).summary("Report the observed state of the node");
    area.put("announce", "/internal/v1/node", announce).summary("Announce the address of the node's Postgres");
    area.post("redeem", "/internal/v1/access/redeem", redeem)
        .summary("Redeem an access code at a hostname")
        .codes(&[&Code::NOT_FOUND]);
    super::ai::routes(&mut area);
    super::certificates::routes(&mut area);
}

path_parameters! {
    Digest: "The bundle's digest.";
}

const INVALID_LONG_POLL: &str = "since and wait must be non-negative integers";

/// The query of a long poll.
#[derive(Debug, Deserialize)]
struct LongPollQuery {
    #[serde(default)]
    since: i64,
    #[serde(default)]
    wait: i64,
}

impl Describe for LongPollQuery {
    fn describe(operation: &mut Operation) {
        let number = json!({ "type": "integer", "minimum": 0, "default": 0 });
        operation.parameter("query", "since", "The revision that the node has; 0 for the full state.", &number);
        operation.parameter("query", "wait", "Seconds to wait for a change, at most 30.", &number);
        operation.long = true;
        operation.code(&Code::BAD_REQUEST);
    }
}

impl Extract for LongPollQuery {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let query: Self = serde_urlencoded::from_str(request.query_string())
            .map_err(|error| Problem::bad_request(format!("{INVALID_LONG_POLL}: {error}")))?;
        if query.since < 0 || query.wait < 0 {
            return Err(Problem::bad_request(INVALID_LONG_POLL));
        }
        if query.wait > 0 {
            release_permit(request);
        }
        Ok(query)
    }
}

async fn desired(by: NodeCaller, nodes: Data<Convergence>, query: LongPollQuery) -> Result<Json<Desired>, Problem> {
    let wait = Duration::from_secs(query.wait.unsigned_abs());
    let desired = nodes.desired(by.node, query.since, wait).await?;
    by.authenticate_again(&nodes).await?;
    Ok(Json(desired))
}

async fn bundle(
    by: NodeCaller,
    Path(digest): Path<Digest>,
    nodes: Data<Convergence>,
    projects: Data<Projects>,
) -> Result<Bytes, Problem> {
    nodes.authorize_bundle(by.node, digest).await?;
    let (length, bytes) = projects.bundle(digest).await?;
    Ok(Bytes::streamed("application/gzip", length, bytes))
}

async fn report(by: NodeCaller, nodes: Data<Convergence>, Body(batch): Body<Batch>) -> Result<Json<Receipt>, Problem> {
    Ok(Json(nodes.report(by.node, batch).await?))
}

async fn announce(by: NodeCaller, nodes: Data<Convergence>, Body(info): Body<NodeInfo>) -> Result<NoContent, Problem> {
    nodes.announce(by.node, info).await?;
    Ok(NoContent)
}

async fn redeem(
    by: NodeCaller,
    nodes: Data<Convergence>,
    projects: Data<Projects>,
    Body(RedeemRequest { host, code }): Body<RedeemRequest>,
) -> Result<Json<RedeemResult>, Problem> {
    // Check the link before the code is redeemed, because a code can be redeemed only once.
    nodes.core()?;
    let (project, user) = projects.access_redeem(&host, &code).await?;
    if !nodes.is_home(by.node, project).await? {
        return Err(ConvergenceError::NotPlacedOnNode.into());
    }
    Ok(Json(RedeemResult { project: project.to_string(), user: user.to_string() }))
}
