//! Routes of a listener, around handlers that misbehave.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends, and one handler here panics")]

use actix_web::middleware::from_fn;
use actix_web::test::{TestRequest, call_service, init_service, read_body_json};
use actix_web::{App, http::StatusCode};
use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{NoContent, Path, Router, Routes, guard, observe};
use serde_json::{Value, json};

async fn panics(_: Open) -> Result<NoContent, Problem> {
    panic!("hunter2 was in a variable")
}

async fn hangs(_: Open) -> Result<NoContent, Problem> {
    std::future::pending().await
}

async fn takes(_: Open, Path(number): Path<u8>) -> Result<NoContent, Problem> {
    assert_eq!(number, 7);
    Ok(NoContent)
}

/// The status and the envelope of a `GET`.
async fn get(path: &str) -> (StatusCode, Value) {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Handlers that misbehave.");
    area.get("panics", "/panics", panics);
    area.get("hangs", "/hangs", hangs);
    area.get("takes", "/takes/{number}", takes);
    let app =
        App::new().configure(|app| Router::of([&routes]).configure(app)).wrap(from_fn(guard)).wrap(from_fn(observe));
    let app = init_service(app).await;
    let request = TestRequest::get().uri(path).insert_header(("x-request-id", "req-1")).to_request();
    let response = call_service(&app, request).await;
    assert_eq!(response.headers().get("x-request-id").unwrap(), "req-1");
    let status = response.status();
    let body = if status == StatusCode::NO_CONTENT { Value::Null } else { read_body_json(response).await };
    (status, body)
}

#[actix_web::test]
async fn a_panic_is_an_envelope_that_tells_nothing_of_it() {
    let (status, body) = get("/panics").await;
    let expected = json!({
        "code": "internal", "message": "something went wrong on our side", "details": null, "requestId": "req-1",
    });
    assert_eq!((status, body), (StatusCode::INTERNAL_SERVER_ERROR, expected));
}

#[actix_web::test]
async fn a_handler_that_hangs_is_given_up() {
    tokio::time::pause();
    let (status, body) = get("/hangs").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("unavailable")));
}

#[actix_web::test]
async fn a_parameter_of_another_type_names_nothing() {
    assert_eq!(get("/takes/7").await.0, StatusCode::NO_CONTENT);
    for path in ["/takes/x", "/takes/256", "/takes/7/", "/takes/%2f"] {
        let (status, body) = get(path).await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("not_found")), "{path}");
    }
}
