//! Routes with failing handlers.

use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{NoContent, Path, PathParameter, Routes};
use serde_json::{Value, json};

use crate::kit::call;

async fn panics(_: Open) -> Result<NoContent, Problem> {
    panic!("hunter2 was in a variable")
}

async fn hangs(_: Open) -> Result<NoContent, Problem> {
    std::future::pending().await
}

struct Small(u8);

impl std::str::FromStr for Small {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl PathParameter for Small {
    const DESCRIPTION: &'static str = "A small number.";

    fn schema() -> Value {
        json!({ "type": "integer" })
    }
}

async fn takes(_: Open, Path(Small(number)): Path<Small>) -> Result<NoContent, Problem> {
    assert_eq!(number, 7);
    Ok(NoContent)
}

/// Returns the status and the envelope of a `GET`.
async fn get(path: &str) -> (StatusCode, Value) {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Handlers that fail.");
    area.get("panics", "/panics", panics);
    area.get("hangs", "/hangs", hangs);
    area.get("takes", "/takes/{number}", takes);
    let answer = call(&routes, TestRequest::get().uri(path)).await;
    assert_eq!(answer.header("x-request-id"), Some("req-1"));
    let body = if answer.status == StatusCode::NO_CONTENT { Value::Null } else { answer.json() };
    (answer.status, body)
}

#[actix_web::test]
async fn panic_is_an_internal_error_without_its_message() {
    let (status, body) = get("/panics").await;
    let expected = json!({
        "code": "internal", "message": "something went wrong on our side", "details": null, "requestId": "req-1",
    });
    assert_eq!((status, body), (StatusCode::INTERNAL_SERVER_ERROR, expected));
}

#[actix_web::test]
async fn hanging_handler_times_out() {
    tokio::time::pause();
    let (status, body) = get("/hangs").await;
    assert_eq!((status, &body["code"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("unavailable")));
}

#[actix_web::test]
async fn path_parameter_that_does_not_parse_is_not_found() {
    assert_eq!(get("/takes/7").await.0, StatusCode::NO_CONTENT);
    for path in ["/takes/x", "/takes/256", "/takes/7/", "/takes/%2f"] {
        let (status, body) = get(path).await;
        assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("not_found")), "{path}");
    }
}
