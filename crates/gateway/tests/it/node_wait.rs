//! Requests that wait for a node, in virtual time.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use actix_web::web::{Data, ServiceConfig};
use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{Json, NodeWait, NodeWaitLimiter, Routes, Shutdown};
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::kit::{TestResponse, call_with};

#[derive(Serialize, ToSchema)]
struct Waited {
    seconds: u64,
}

/// Waits for ten minutes.
async fn wait(_: Open, _: NodeWait) -> Result<Json<Waited>, Problem> {
    tokio::time::sleep(Duration::from_secs(600)).await;
    Ok(Json(Waited { seconds: 600 }))
}

/// Waits for an hour.
async fn wait_too_long(_: Open, _: NodeWait) -> Result<Json<Waited>, Problem> {
    tokio::time::sleep(Duration::from_secs(3600)).await;
    Ok(Json(Waited { seconds: 3600 }))
}

/// Takes nine seconds, without a wait for a node.
async fn work(_: Open) -> Result<Json<Waited>, Problem> {
    tokio::time::sleep(Duration::from_secs(9)).await;
    Ok(Json(Waited { seconds: 9 }))
}

/// Sends a request to a process with this shutdown.
async fn send(path: &str, shutdown: &Shutdown) -> TestResponse {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Waits.");
    area.put("wait", "/wait", wait);
    area.put("wait_too_long", "/wait-too-long", wait_too_long);
    area.put("work", "/work", work);
    let services = |app: &mut ServiceConfig| {
        app.app_data(Data::new(NodeWaitLimiter::default())).app_data(Data::new(shutdown.clone()));
    };
    call_with(&routes, services, TestRequest::put().uri(path)).await
}

/// Sends a request to a process that shuts down after `stop` seconds. Returns the response and its time in seconds.
async fn post(path: &str, stop: Option<u64>) -> (TestResponse, u64) {
    let (shutdown, start) = (Shutdown::default(), Instant::now());
    let stopping = async {
        if let Some(seconds) = stop {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            shutdown.begin();
        }
    };
    let (response, ()) = tokio::join!(send(path, &shutdown), stopping);
    (response, start.elapsed().as_secs())
}

#[actix_web::test]
async fn wait_may_take_ten_minutes_and_has_a_timeout() {
    tokio::time::pause();
    let (response, seconds) = post("/wait", None).await;
    assert_eq!((response.status, response.json()["seconds"].as_u64(), seconds), (StatusCode::OK, Some(600), 600));
    let (response, seconds) = post("/wait-too-long", None).await;
    assert_eq!((response.status, seconds), (StatusCode::SERVICE_UNAVAILABLE, 900));
    assert_eq!(response.json()["code"], "unavailable");
}

#[actix_web::test]
async fn shutdown_ends_a_wait_after_a_grace_with_a_response() {
    tokio::time::pause();
    for stop in [0, 300] {
        let (response, seconds) = post("/wait", Some(stop)).await;
        assert_eq!((response.status, seconds), (StatusCode::SERVICE_UNAVAILABLE, stop + 20));
        assert_eq!(response.json()["code"], "unavailable");
        assert_eq!(response.header("retry-after"), Some("1"));
    }
    // The shutdown does not cut off a wait that finishes in time, or another request.
    assert_eq!(post("/wait", Some(590)).await.0.status, StatusCode::OK);
    assert_eq!(post("/work", Some(0)).await.0.status, StatusCode::OK);
}

#[actix_web::test]
async fn wait_that_begins_during_a_shutdown_ends_with_the_same_grace() {
    tokio::time::pause();
    let (shutdown, start) = (Shutdown::default(), Instant::now());
    shutdown.begin();
    // The second request begins after the grace.
    for (pause, end) in [(10, 20), (5, 25)] {
        tokio::time::sleep(Duration::from_secs(pause)).await;
        let response = send("/wait", &shutdown).await;
        assert_eq!((response.status, start.elapsed().as_secs()), (StatusCode::SERVICE_UNAVAILABLE, end));
    }
}
