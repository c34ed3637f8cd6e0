//! Error formats by path prefix.

use actix_web::http::StatusCode;
use actix_web::test::TestRequest;
use gateway::authority::Open;
use gateway::http::NoContent;
use gateway::http::Routes;
use gateway::v1::routes;
use gateway::{Problem, SignInMethods, pdns_routes};
use serde_json::json;

use crate::kit::call;

fn public() -> Routes {
    routes(SignInMethods { dev: true, code_host: true })
}

#[actix_web::test]
async fn unknown_paths_have_the_error_format_of_their_prefix() {
    let envelope = call(&public(), TestRequest::get().uri("/v1/nothing")).await;
    assert_eq!((envelope.status, &envelope.json()["code"]), (StatusCode::NOT_FOUND, &json!("not_found")));
    let oauth = call(&public(), TestRequest::get().uri("/oauth/nothing")).await;
    assert_eq!(oauth.status, StatusCode::NOT_FOUND);
    let expected = json!({ "error": "invalid_request", "error_description": "there is no resource at this address" });
    assert_eq!(oauth.json(), expected);
    assert_eq!((oauth.header("cache-control"), oauth.header("pragma")), (Some("no-store"), Some("no-cache")));
    let hook = call(&public(), TestRequest::post().uri("/v1/hooks/nothing")).await;
    assert_eq!((hook.status, hook.body.len()), (StatusCode::NOT_FOUND, 0));
    let powerdns = call(&pdns_routes(), TestRequest::get().uri("/api/v1/nothing")).await;
    assert_eq!(powerdns.status, StatusCode::NOT_FOUND);
    assert_eq!(powerdns.json(), json!({ "error": "there is no resource at this address" }));
}

#[actix_web::test]
async fn error_format_prefix_matches_whole_segments() {
    for path in ["/oauthx", "/v1/hooksmith", "/apiary"] {
        let answer = call(&public(), TestRequest::get().uri(path)).await;
        assert_eq!(answer.json()["requestId"], "req-1", "{path}");
    }
}

#[actix_web::test]
async fn errors_before_routing_have_the_format_of_their_prefix() {
    let long = "x".repeat(9000);
    let oauth = call(&public(), TestRequest::get().uri(&format!("/oauth/token?{long}"))).await;
    assert_eq!((oauth.status, &oauth.json()["error"]), (StatusCode::URI_TOO_LONG, &json!("invalid_request")));
    let hook = call(&public(), TestRequest::get().uri(&format!("/v1/hooks/payments?{long}"))).await;
    assert_eq!((hook.status, hook.body.len()), (StatusCode::URI_TOO_LONG, 0));
}

async fn quotes(_: Open) -> Result<NoContent, Problem> {
    Err(Problem::new(&kernel::Code::UNAVAILABLE, "say \"café\"\\"))
}

#[actix_web::test]
async fn oauth_error_description_contains_only_allowed_characters() {
    let mut routes = public();
    routes.area("test", "Handlers that fail.").post("quotes", "/oauth/test", quotes);
    let answer = call(&routes, TestRequest::post().uri("/oauth/test")).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(answer.json(), json!({ "error": "temporarily_unavailable", "error_description": "say ?caf???" }));
    assert_eq!(answer.header("retry-after"), Some("1"));
}
