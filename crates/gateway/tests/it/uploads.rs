//! The timeouts and the minimum rate of bodies, in virtual time.

use std::time::Duration;

use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use actix_web::web::{Bytes, Data, ServiceConfig};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{Body, BodyMemory, Json, Routes, Upload, UploadLimiter, ZonefileBody};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;
use validator::Validate;

use crate::kit::call_streaming;

const KIB: usize = 1024;

#[derive(Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Received {
    bytes: usize,
}

async fn receive(_: Open, upload: Upload) -> Result<Json<Received>, Problem> {
    let (mut stream, mut bytes) = (upload.into_stream(), 0);
    while let Some(chunk) = stream.next().await {
        bytes += chunk?.len();
    }
    Ok(Json(Received { bytes }))
}

/// Receives each chunk a minute after the previous one.
async fn receive_slowly(_: Open, upload: Upload) -> Result<Json<Received>, Problem> {
    let (mut stream, mut bytes) = (upload.into_stream(), 0);
    while let Some(chunk) = stream.next().await {
        bytes += chunk?.len();
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    Ok(Json(Received { bytes }))
}

async fn zone(_: Open, ZonefileBody(text): ZonefileBody) -> Result<Json<Received>, Problem> {
    Ok(Json(Received { bytes: text.len() }))
}

async fn echo(_: Open, Body(body): Body<Received>) -> Result<Json<Received>, Problem> {
    Ok(Json(body))
}

async fn echo_large(_: Open, Body(body): Body<Received, { 2 * KIB * KIB }>) -> Result<Json<Received>, Problem> {
    Ok(Json(body))
}

/// Creates a body of chunks. A chunk consists of the seconds that pass before it, and its length in bytes.
fn body(chunks: Vec<(u64, usize)>) -> Payload {
    let chunks = futures_util::stream::iter(chunks).then(|(seconds, bytes)| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(Bytes::from(vec![b' '; bytes]))
    });
    Payload::Stream { payload: Box::pin(chunks) }
}

/// Sends these chunks, and returns the status and the JSON of the response.
async fn send(path: &str, content_type: &str, chunks: Vec<(u64, usize)>) -> (StatusCode, Value) {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Uploads.");
    area.put("receive", "/receive", receive);
    area.put("receive_slowly", "/slow", receive_slowly);
    area.put("zone", "/zone", zone);
    area.put("echo", "/echo", echo);
    let services = |app: &mut ServiceConfig| {
        app.app_data(Data::new(UploadLimiter::default()));
    };
    let request = TestRequest::put().uri(path).insert_header(("content-type", content_type));
    let answer = call_streaming(&routes, services, request, Some(body(chunks))).await;
    (answer.status, answer.json())
}

async fn upload(chunks: Vec<(u64, usize)>) -> (StatusCode, Value) {
    send("/receive", "application/gzip", chunks).await
}

#[track_caller]
fn assert_timeout((status, body): (StatusCode, Value), message: &str) {
    assert_eq!((status, &body["code"]), (StatusCode::REQUEST_TIMEOUT, &json!("request_timeout")), "{body}");
    assert!(body["message"].as_str().unwrap().contains(message), "{body}");
}

#[track_caller]
fn assert_received((status, body): (StatusCode, Value), bytes: usize) {
    assert_eq!((status, body), (StatusCode::OK, json!({ "bytes": bytes })));
}

#[actix_web::test]
async fn upload_below_the_minimum_rate_ends() {
    tokio::time::pause();
    assert_timeout(upload(vec![(1, 8 * KIB); 60]).await, "16 KiB");
    assert_timeout(upload(vec![(1, 1); 60]).await, "16 KiB");
    assert_timeout(upload(vec![(11, 16 * KIB)]).await, "16 KiB");
    let zone_file = send("/zone", "text/dns", vec![(1, 8 * KIB); 60]).await;
    assert_timeout(zone_file, "16 KiB");
}

#[actix_web::test]
async fn upload_at_the_minimum_rate_is_received() {
    tokio::time::pause();
    assert_received(upload(vec![(1, 16 * KIB); 60]).await, 60 * 16 * KIB);
    // The rate applies after ten seconds.
    assert_received(upload(vec![(3, 1), (3, 1), (3, 1)]).await, 3);
    assert_received(send("/zone", "text/dns", vec![(1, 16 * KIB); 60]).await, 60 * 16 * KIB);
}

#[actix_web::test]
async fn fast_upload_may_pause() {
    tokio::time::pause();
    let with_pause = |seconds| upload(vec![(0, KIB * KIB), (seconds, 1), (0, KIB * KIB), (seconds, 1)]);
    assert_received(with_pause(25).await, 2 * KIB * KIB + 2);
    assert_timeout(with_pause(35).await, "16 KiB");
}

#[actix_web::test]
async fn upload_that_takes_too_long_ends() {
    tokio::time::pause();
    assert_timeout(upload(vec![(1, 20 * KIB); 700]).await, "600 s");
}

#[actix_web::test]
async fn slow_server_does_not_end_an_upload() {
    tokio::time::pause();
    assert_received(send("/slow", "application/gzip", vec![(0, KIB); 5]).await, 5 * KIB);
}

#[actix_web::test]
async fn json_body_that_takes_too_long_is_a_timeout() {
    tokio::time::pause();
    assert_timeout(send("/echo", "application/json", vec![(2, 1); 10]).await, "5 s");
}

/// Sends a large body that does not arrive.
async fn send_large(memory: Data<BodyMemory>) -> StatusCode {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Large bodies.");
    area.put("echo_large", "/large", echo_large);
    let services = |app: &mut ServiceConfig| {
        app.app_data(memory);
    };
    let request = TestRequest::put().uri("/large").insert_header(("content-type", "application/json"));
    call_streaming(&routes, services, request, Some(body(vec![(60, 1)]))).await.status
}

#[actix_web::test]
async fn large_bodies_have_memory_while_they_arrive() {
    tokio::time::pause();
    // Callers without a user get a quarter of it.
    let memory = Data::new(BodyMemory::public(512 << 20));
    let mut statuses = join_all((0..17).map(|_| send_large(memory.clone()))).await;
    statuses.sort_unstable();
    let (late, refused) = statuses.split_at(16);
    assert_eq!(late, [StatusCode::REQUEST_TIMEOUT; 16]);
    assert_eq!(refused, [StatusCode::SERVICE_UNAVAILABLE]);
    // They release the memory when they end.
    let statuses = join_all((0..16).map(|_| send_large(memory.clone()))).await;
    assert_eq!(statuses, [StatusCode::REQUEST_TIMEOUT; 16]);
}
