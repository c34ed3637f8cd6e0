//! An application with the routes of a test.

use actix_web::App;
use actix_web::dev::Payload;
use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::middleware::from_fn;
use actix_web::test::{TestRequest, call_service, init_service, read_body};
use actix_web::web::ServiceConfig;
use gateway::http::{Router, Routes, guard, request_telemetry};
use serde_json::Value;

/// The response to a request.
pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl TestResponse {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Sends a request with the id `req-1` to these routes.
pub async fn call(routes: &Routes, request: TestRequest) -> TestResponse {
    call_with(routes, |_| (), request).await
}

/// Like [`call`], with app data for the handlers.
pub async fn call_with(
    routes: &Routes,
    services: impl FnOnce(&mut ServiceConfig),
    request: TestRequest,
) -> TestResponse {
    call_streaming(routes, services, request, None).await
}

/// Like [`call_with`], with this body.
pub async fn call_streaming(
    routes: &Routes,
    services: impl FnOnce(&mut ServiceConfig),
    request: TestRequest,
    body: Option<Payload>,
) -> TestResponse {
    let router = Router::of(&[routes]).unwrap();
    let app = App::new().configure(services).configure(|app| router.configure(app));
    let app = app.wrap(from_fn(guard)).wrap(from_fn(request_telemetry));
    let app = init_service(app).await;
    let mut request = request.insert_header(("x-request-id", "req-1")).to_request();
    if let Some(body) = body {
        request = request.replace_payload(body).0;
    }
    let response = call_service(&app, request).await;
    let (status, headers) = (response.status(), response.headers().clone());
    TestResponse { status, headers, body: read_body(response).await.to_vec() }
}
