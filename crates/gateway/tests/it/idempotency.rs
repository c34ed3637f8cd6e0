//! Requests with an `Idempotency-Key`: the limits of their bodies and of their stored responses.

use actix_web::HttpRequest;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use actix_web::web::{Data, ServiceConfig};
use gateway::Problem;
use gateway::http::{Body, BodyMemory, Describe, Extract, Json, Operation, Policy, Routes};
use kernel::audit::Actor;
use kernel::{AbuseLimits, ClockRng, UserId};
use serde::{Deserialize, Serialize};
use serde_json::json;
use testkit::TestStore;
use utoipa::ToSchema;
use validator::Validate;

use crate::kit::{TestResponse, call_with};

/// An authenticated caller.
struct TestCaller(Actor);

impl Describe for TestCaller {
    fn describe(_: &mut Operation) {}
}

impl Extract for TestCaller {
    async fn extract(_: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(testkit::session_actor(ClockRng::system().id::<UserId>())))
    }
}

impl Policy for TestCaller {
    fn actor(&mut self) -> Option<&mut Actor> {
        Some(&mut self.0)
    }
}

/// The same authenticated caller in each request.
struct SameCaller(Actor);

impl Describe for SameCaller {
    fn describe(_: &mut Operation) {}
}

impl Extract for SameCaller {
    async fn extract(_: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        Ok(Self(testkit::session_actor(UserId::from_uuid(uuid::Uuid::from_u128(7)))))
    }
}

impl Policy for SameCaller {
    fn actor(&mut self) -> Option<&mut Actor> {
        Some(&mut self.0)
    }
}

#[derive(Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    text: String,
}

#[derive(Serialize, ToSchema)]
struct Length {
    length: usize,
}

async fn large(_: TestCaller, Body(body): Body<Text, 200_000>) -> Result<Json<Length>, Problem> {
    Ok(Json(Length { length: body.text.len() }))
}

async fn small(_: TestCaller, Body(body): Body<Text, 100>) -> Result<Json<Length>, Problem> {
    Ok(Json(Length { length: body.text.len() }))
}

async fn text(_: SameCaller, Body(body): Body<Text>) -> Result<Json<Length>, Problem> {
    Ok(Json(Length { length: body.text.len() }))
}

async fn echo(_: SameCaller, Body(body): Body<Text>) -> Result<Json<Text>, Problem> {
    Ok(Json(body))
}

async fn bare(_: SameCaller) -> Result<Json<Length>, Problem> {
    Ok(Json(Length { length: 0 }))
}

async fn post(store: &TestStore, path: &str, length: usize) -> TestResponse {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Bodies of several sizes.");
    area.post("large", "/large", large);
    area.post("small", "/small", small);
    let request = TestRequest::post().uri(path).insert_header(("idempotency-key", "key"));
    let request = request.set_json(json!({ "text": "x".repeat(length) }));
    let (store, memory) = (Data::new(store.store.clone()), Data::new(BodyMemory::public(128 << 20)));
    let services = |app: &mut ServiceConfig| {
        app.app_data(store).app_data(memory).app_data(Data::new(AbuseLimits::default()));
    };
    call_with(&routes, services, request).await
}

#[actix_web::test]
async fn body_has_the_limit_of_its_operation() {
    let store = TestStore::start().await;
    let answer = post(&store, "/large", 150_000).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "length": 150_000 })));
    for (path, length, limit) in [("/large", 200_000, 200_000), ("/small", 100, 100)] {
        let answer = post(&store, path, length).await;
        assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
        assert_eq!(answer.json()["details"], json!({ "limit": limit }), "{path}");
    }
}

/// Sends a body as the same caller and with the same key. Returns the status, and whether the response is a replay.
async fn repeat(store: &TestStore, uri: &str, body: Vec<u8>) -> (StatusCode, bool) {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Repeated requests.");
    area.post("text", "/text", text);
    area.post("echo", "/echo", echo);
    area.post("bare", "/bare", bare);
    let request = TestRequest::post().uri(uri).insert_header(("idempotency-key", "key"));
    let request = request.insert_header(("content-type", "application/json")).set_payload(body);
    let store = Data::new(store.store.clone());
    let services = |app: &mut ServiceConfig| {
        app.app_data(store).app_data(Data::new(AbuseLimits::default()));
    };
    let answer = call_with(&routes, services, request).await;
    (answer.status, answer.header("idempotent-replayed") == Some("true"))
}

#[actix_web::test]
async fn scheme_and_authority_do_not_matter() {
    let store = TestStore::start().await;
    let body = br#"{"text":"a"}"#.to_vec();
    assert_eq!(repeat(&store, "/text", body.clone()).await, (StatusCode::OK, false));
    for uri in ["https://svc.example/text", "http://127.0.0.1:8080/text", "/text"] {
        assert_eq!(repeat(&store, uri, body.clone()).await, (StatusCode::OK, true), "{uri}");
    }
    let other = br#"{"text":"b"}"#.to_vec();
    assert_eq!(repeat(&store, "/text", other).await, (StatusCode::UNPROCESSABLE_ENTITY, false));
}

#[actix_web::test]
async fn body_of_a_route_without_one_is_ignored() {
    let store = TestStore::start().await;
    assert_eq!(repeat(&store, "/bare", b"{}".to_vec()).await, (StatusCode::OK, false));
    for body in [Vec::new(), b"{".to_vec(), vec![b'x'; 100_000]] {
        assert_eq!(repeat(&store, "/bare", body).await, (StatusCode::OK, true));
    }
}

#[actix_web::test]
async fn large_response_is_not_stored() {
    let store = TestStore::start().await;
    let body = |bytes: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - 11)).into_bytes();
    for _ in 0..2 {
        assert_eq!(repeat(&store, "/echo", body(16 * 1024 + 1)).await, (StatusCode::OK, false));
    }
    assert_eq!(store.database.number("SELECT count(*) FROM store.idempotency").await, 0);
    // The request changed nothing, so the key may be used for another one.
    assert_eq!(repeat(&store, "/echo", body(16 * 1024)).await, (StatusCode::OK, false));
    assert_eq!(repeat(&store, "/echo", body(16 * 1024)).await, (StatusCode::OK, true));
}
