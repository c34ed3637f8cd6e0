//! Form, raw and JSON bodies.

use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use gateway::Problem;
use gateway::authority::Open;
use gateway::http::{Body, Form, Json, Raw, Routes};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use validator::Validate;

use crate::kit::{TestResponse, call};

#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct Exchange {
    grant_type: String,
    #[serde(default)]
    #[validate(length(max = 8))]
    #[schema(max_length = 8)]
    code: Option<String>,
}

#[derive(Serialize, ToSchema)]
struct HookResult {
    bytes: usize,
    signature: Option<String>,
}

async fn exchange(_: Open, Form(form): Form<Exchange, 64>) -> Result<Json<Exchange>, Problem> {
    Ok(Json(form))
}

async fn hook(_: Open, raw: Raw<64>) -> Result<Json<HookResult>, Problem> {
    Ok(Json(HookResult { bytes: raw.bytes.len(), signature: raw.headers.get("webhook-signature").map(str::to_owned) }))
}

async fn echo(_: Open, Body(body): Body<Exchange, 64>) -> Result<Json<Exchange>, Problem> {
    Ok(Json(body))
}

fn routes() -> Routes {
    let mut routes = Routes::default();
    let mut area = routes.area("test", "Bodies.");
    area.post("exchange", "/exchange", exchange);
    area.post("hook", "/hook", hook);
    area.post("echo", "/echo", echo);
    routes
}

async fn post_form(body: &'static str) -> TestResponse {
    let content_type = ("content-type", "application/x-www-form-urlencoded");
    call(&routes(), TestRequest::post().uri("/exchange").insert_header(content_type).set_payload(body)).await
}

#[actix_web::test]
async fn form_is_decoded() {
    let answer = post_form("grant_type=a+b%26c&code=%C3%A9").await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "grant_type": "a b&c", "code": "é" })));
}

#[actix_web::test]
async fn unknown_form_parameters_are_ignored_and_empty_ones_are_absent() {
    let answer = post_form("grant_type=x&code=&audience=y&flag").await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "grant_type": "x", "code": null })));
    let missing = post_form("grant_type=&code=1").await;
    assert_eq!(
        (missing.status, &missing.json()["details"]["fields"][0]["path"]),
        (StatusCode::BAD_REQUEST, &json!("grant_type"))
    );
}

#[actix_web::test]
async fn repeated_form_parameters_are_rejected() {
    for (body, name) in [
        ("grant_type=x&grant_type=x", "grant_type"),
        ("grant_type=x&code=&code=", "code"),
        ("grant_type=x&other=1&other=2", "other"),
        ("grant_type=x&%63ode=1&code=1", "code"),
    ] {
        let answer = post_form(body).await;
        let fields = json!([{ "path": name, "message": "must not be repeated" }]);
        assert_eq!((answer.status, &answer.json()["details"]["fields"]), (StatusCode::BAD_REQUEST, &fields), "{body}");
    }
}

#[actix_web::test]
async fn invalid_encoding_size_and_content_type_of_a_form_are_rejected() {
    let broken: [&'static str; 4] =
        ["grant_type=%ZZ", "grant_type=%FF", "grant_type=a%00b", "grant_type=x&code=123456789"];
    for body in broken {
        assert_eq!(post_form(body).await.status, StatusCode::BAD_REQUEST, "{body}");
    }
    let large = "grant_type=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
    assert_eq!(post_form(large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let json = TestRequest::post().uri("/exchange").set_json(json!({ "grant_type": "x" }));
    assert_eq!(call(&routes(), json).await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[actix_web::test]
async fn form_ignores_the_query() {
    let request = TestRequest::post().uri("/exchange?code=1&grant_type=y");
    let request = request.insert_header(("content-type", "application/x-www-form-urlencoded; charset=UTF-8"));
    let answer = call(&routes(), request.set_payload("grant_type=x")).await;
    assert_eq!(answer.json(), json!({ "grant_type": "x", "code": null }));
}

#[actix_web::test]
async fn raw_body_has_the_bytes_and_headers() {
    let request = TestRequest::post().uri("/hook").insert_header(("webhook-signature", "v1,abc"));
    let answer = call(&routes(), request.set_payload(&b"\xff\x00 {"[..])).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({ "bytes": 4, "signature": "v1,abc" })));
    let large = call(&routes(), TestRequest::post().uri("/hook").set_payload(vec![b'x'; 65])).await;
    assert_eq!((large.status, &large.json()["details"]["limit"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!(64)));
    let twice = TestRequest::post().uri("/hook").append_header(("webhook-signature", "a"));
    let answer = call(&routes(), twice.append_header(("webhook-signature", "b"))).await;
    assert_eq!(answer.json(), json!({ "bytes": 0, "signature": null }));
}

#[actix_web::test]
async fn json_body_has_the_limit_of_its_operation() {
    let long = json!({ "grant_type": "x".repeat(64) });
    let answer = call(&routes(), TestRequest::post().uri("/echo").set_json(long)).await;
    assert_eq!((answer.status, &answer.json()["details"]["limit"]), (StatusCode::PAYLOAD_TOO_LARGE, &json!(64)));
}
