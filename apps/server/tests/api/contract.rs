//! The common contract of all routes: error envelope, headers and methods.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::overload::connect;
use crate::support::{ApiResponse, App, Caller, eventually};

/// Returns the field errors of a response, as `path: message`.
fn field_errors(response: &ApiResponse) -> Vec<String> {
    let fields = response.expect_error(400, "bad_request")["details"]["fields"].as_array().unwrap();
    let text = |field: &Value| format!("{}: {}", field["path"].as_str().unwrap(), field["message"].as_str().unwrap());
    fields.iter().map(text).collect()
}

async fn raw(caller: &Caller, content_type: &str, body: impl Into<reqwest::Body>) -> ApiResponse {
    let (content_type, body) = (content_type.to_owned(), body.into());
    caller.send(Method::POST, "/v1/orgs", |request| request.header("content-type", content_type).body(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_body_is_rejected_with_all_field_errors() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let post = async |body: Value| field_errors(&ada.post("/v1/orgs", body).await);
    assert_eq!(post(json!({})).await, ["slug: is missing"]);
    assert_eq!(post(json!([])).await, [": must be an object"]);
    let slug = "slug: must be 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit";
    assert_eq!(
        post(json!({ "slug": "Acme!", "name": 7, "extra": null })).await,
        ["extra: is not a field of this request", "name: must be a string", slug]
    );
    assert_eq!(post(json!({ "slug": "admin" })).await, ["slug: is reserved for the platform; choose another"]);
    assert_eq!(post(json!({ "slug": "acme", "name": "a\u{0}b" })).await, ["name: must not contain U+0000"]);
    let members = "/v1/orgs/ada/members";
    assert_eq!(
        field_errors(&ada.post(members, json!({ "provider": "x", "role": "owner" })).await),
        ["subject: is missing", "provider: must be one of: dev codehost", "role: must be one of: viewer member admin"]
    );
    let login = json!({ "subject": "ada", "email": "invalid" });
    assert_eq!(
        field_errors(&app.anonymous().post("/v1/auth/dev/login", login).await),
        ["email: must be an e-mail address of at most 254 characters, 64 of them before the @"]
    );
    // Rules that no pattern can state are checked together with the others.
    assert_eq!(
        post(json!({ "slug": "admin", "extra": null })).await,
        ["extra: is not a field of this request", "slug: is reserved for the platform; choose another"]
    );
    let login = json!({ "subject": "Ada", "email": format!("{}@example.org", "a".repeat(65)) });
    assert_eq!(
        field_errors(&app.anonymous().post("/v1/auth/dev/login", login).await),
        [
            "email: must be an e-mail address of at most 254 characters, 64 of them before the @",
            "subject: must be 1 to 64 characters of a-z, 0-9 and -"
        ]
    );
    let time = "must be a time in the format of RFC 3339, such as 2026-11-21T08:00:00Z";
    assert_eq!(
        field_errors(&ada.get("/v1/orgs/ada/audit?since=x&until=y&actor=z").await),
        ["actor: must be an id that starts with usr_".to_owned(), format!("since: {time}"), format!("until: {time}")]
    );
    // The rejected requests changed nothing.
    assert_eq!(ada.get("/v1/orgs").await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn response_lists_at_most_a_hundred_invalid_fields() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/dns/zones", json!({ "name": "example.org" })).await.expect(200);
    let numbers = json!({ "rrsets": [{ "name": "a", "type": "A", "records": vec![1; 50_000] }] });
    let unknown: serde_json::Map<_, _> = (0..3000).map(|at| (format!("field{at:04}"), Value::Null)).collect();
    for response in [
        ada.patch("/v1/orgs/ada/dns/zones/example.org/rrsets", numbers).await,
        ada.post("/v1/orgs", Value::Object(unknown)).await,
    ] {
        assert_eq!(field_errors(&response).len(), 100);
        assert!(response.body["message"].as_str().unwrap().ends_with("; and 95 more"), "{}", response.body["message"]);
        assert!(response.bytes.len() < 16_384, "{} bytes", response.bytes.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_parsed_strictly() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let json = "application/json";
    for body in ["", "{", "nul", "{\"slug\":\"a\",\"slug\":\"b\"}", "{} {}", "{\"slug\":\"\u{1}\"}"] {
        let response = raw(&ada, json, body).await;
        assert!(field_errors(&response)[0].starts_with(": is not valid JSON"), "{body} {response:?}");
    }
    field_errors(&raw(&ada, json, format!("{}{}", "[".repeat(80), "]".repeat(80))).await);
    field_errors(&raw(&ada, json, vec![b'"', 0xff, b'"']).await);
    let large = raw(&ada, json, " ".repeat(70_000)).await;
    assert_eq!(large.expect_error(413, "payload_too_large")["details"]["limit"], 65_536);
    raw(&ada, "text/plain", "{}").await.expect_error(415, "unsupported_media_type");
    raw(&ada, "application/x-www-form-urlencoded", "slug=acme").await.expect_error(415, "unsupported_media_type");
    let encoded = async |coding: &str, slug: &str| {
        let build = |request: reqwest::RequestBuilder| {
            request.header("content-encoding", coding).json(&json!({ "slug": slug }))
        };
        ada.send(Method::POST, "/v1/orgs", build).await
    };
    for coding in ["gzip", "identity, gzip"] {
        let refused = encoded(coding, "acme").await;
        refused.expect_error(415, "unsupported_media_type");
        assert_eq!(refused.header("accept-encoding"), "identity");
    }
    encoded("Identity", "plain").await.expect(201);
    raw(&ada, "application/json; charset=utf-8", r#"{"slug":"acme"}"#).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn authorization_is_checked_before_the_body() {
    let app = App::start().await;
    let response = app.anonymous().post("/v1/orgs", json!({ "wrong": true })).await;
    response.expect_error(401, "unauthenticated");
    assert_eq!(response.header("www-authenticate"), "Bearer");
    let ada = app.sign_in("ada").await;
    let bob = app.sign_in("bob").await;
    bob.post("/v1/orgs/ada/projects", json!({ "wrong": true })).await.expect_error(403, "forbidden");
    ada.post("/v1/orgs/none/projects", json!({ "wrong": true })).await.expect_error(404, "not_found");
    // The response does not show an outsider whether the project exists.
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let (existing, missing) =
        (bob.get("/v1/orgs/ada/projects/site").await, bob.get("/v1/orgs/ada/projects/other").await);
    let without_id = |response: &ApiResponse| {
        let mut body = response.expect_error(403, "forbidden").clone();
        body["requestId"] = Value::Null;
        body
    };
    assert_eq!(without_id(&existing), without_id(&missing));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_return_the_error_envelope() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for path in ["/", "/v1", "/v1/", "/v1/me/", "/v1/orgs/ada/", "/v1/nothing"] {
        ada.get(path).await.expect_error(404, "not_found");
    }
    // Percent-encoding of unreserved characters is rejected, so that each resource has one path.
    for path in ["/v1/%6de", "/v1/orgs/ad%61/members", "/v1/orgs/ada/projects/a%2Db"] {
        ada.get(path).await.expect_error(400, "bad_request");
    }
    let response = ada.delete("/v1/me").await;
    response.expect_error(405, "method_not_allowed");
    assert_eq!(response.header("allow"), "GET, HEAD");
    assert_eq!(ada.send(Method::PATCH, "/v1/orgs", |request| request).await.header("allow"), "GET, HEAD, POST");
    let head = ada.send(Method::HEAD, "/v1/me", |request| request).await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    for user in ["usr_x", "nonsense", "org_01h455vb4pex5vsknk084sn02q"] {
        ada.delete(&format!("/v1/orgs/ada/members/{user}")).await.expect_error(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_request_ids_are_kept() {
    let app = App::start().await;
    let call = async |id: &str| {
        let anonymous = app.anonymous();
        anonymous
            .send(Method::GET, "/v1/me", |request| request.header("x-request-id", id))
            .await
            .header("x-request-id")
            .to_owned()
    };
    assert_eq!(call("build-17.a_b").await, "build-17.a_b");
    for invalid in ["a b", "x".repeat(65).as_str(), "<script>"] {
        let id = call(invalid).await;
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
    }
    // The audit event has the same request ID.
    let login = app.anonymous();
    let body = json!({ "subject": "ada" });
    login.send(Method::POST, "/v1/auth/dev/login", |request| request.header("x-request-id", "req-1").json(&body)).await;
    let rows = app.db_rows("SELECT request_id, credential FROM store.audit WHERE event NOT LIKE 'oauth.key.%'").await;
    assert_eq!(rows, [json!({ "request_id": "req-1", "credential": "none" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_have_security_headers_and_cors_allows_only_the_dashboard() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let response = ada.get("/v1/me").await;
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("access-control-allow-origin", ""),
        ("strict-transport-security", ""),
    ] {
        assert_eq!(response.header(name), value, "{name}");
    }
    let from = async |origin: &str, method: Method| {
        app.anonymous()
            .send(method, "/v1/me", |request| {
                request
                    .header("origin", origin)
                    .header("access-control-request-method", "GET")
                    .header("access-control-request-headers", "authorization")
            })
            .await
    };
    let preflight = from("http://localhost:3000", Method::OPTIONS).await;
    assert_eq!((preflight.status, preflight.header("access-control-allow-origin")), (200, "http://localhost:3000"));
    assert_eq!(
        from("http://localhost:3000", Method::GET).await.header("access-control-allow-origin"),
        "http://localhost:3000"
    );
    // Pages can read the name of a download, and the reason of a 401.
    let response = from("http://localhost:3000", Method::GET).await;
    let exposed = response.header("access-control-expose-headers").to_ascii_lowercase();
    let exposed: Vec<&str> = exposed.split(',').map(str::trim).collect();
    for name in ["content-disposition", "etag", "retry-after", "www-authenticate", "x-request-id"] {
        assert!(exposed.contains(&name), "{name}: {exposed:?}");
    }
    for origin in ["http://localhost:3001", "http://localhost:3000.evil.example", "null"] {
        assert_eq!(from(origin, Method::GET).await.header("access-control-allow-origin"), "", "{origin}");
        assert_eq!(from(origin, Method::OPTIONS).await.header("access-control-allow-origin"), "", "{origin}");
    }
    // The pages of the dashboard can send conditional requests. The response to a refused preflight request names the
    // allowed values.
    let preflight = async |origin: &str, method: &str, headers: &str| {
        let send = |request: reqwest::RequestBuilder| {
            request
                .header("origin", origin)
                .header("access-control-request-method", method)
                .header("access-control-request-headers", headers)
        };
        app.anonymous().send(Method::OPTIONS, "/v1/me", send).await
    };
    for method in ["HEAD", "GET"] {
        preflight("http://localhost:3000", method, "authorization,if-none-match").await.expect(200);
    }
    for (origin, method, headers, allowed) in [
        ("http://localhost:3001", "GET", "authorization", "http://localhost:3000"),
        ("http://localhost:3000", "TRACE", "authorization", "GET, HEAD, POST, PUT, PATCH, DELETE"),
        ("http://localhost:3000", "GET", "x-other", "authorization, content-type, if-match, if-none-match"),
    ] {
        let refused = preflight(origin, method, headers).await;
        let message = refused.expect_error(400, "bad_request")["message"].as_str().unwrap();
        assert!(message.contains(allowed), "{message}");
    }
}

/// Sends raw bytes, which an HTTP client would not send, and returns the response.
async fn send_raw(app: &App, request: &[u8]) -> String {
    exchange(connect(app).await, request).await
}

/// Sends the last request of a connection, and returns the response.
async fn exchange(mut stream: TcpStream, request: &[u8]) -> String {
    stream.write_all(request).await.unwrap();
    let mut response = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut response)).await;
    read.expect("the server did not close the connection").unwrap();
    String::from_utf8(response).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn oversized_and_malformed_requests_return_the_error_envelope() {
    let app = App::start().await;
    let get = async |target: &str, headers: &str| {
        send_raw(&app, format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes())
            .await
    };
    let many: String = (0..70).map(|n| format!("X-H{n}: 1\r\n")).collect();
    for (response, status, code) in [
        (get("/v1/%ff", "").await, "400", "bad_request"),
        (get("/v1/%zz", "").await, "400", "bad_request"),
        (get("/v1/a%00b", "").await, "400", "bad_request"),
        (get(&format!("/{}", "a".repeat(9000)), "").await, "414", "uri_too_long"),
        (get("/v1/me", &many).await, "431", "headers_too_large"),
        (get("/v1/me", &format!("X-Large: {}\r\n", "a".repeat(17_000))).await, "431", "headers_too_large"),
        (get("/v1/me", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n").await, "401", "unauthenticated"),
    ] {
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
        assert!(response.contains(&format!("\"code\":\"{code}\"")), "{response}");
    }
    // The HTTP library rejects these requests, on a new connection and after another request.
    let lines: String = (0..100).map(|n| format!("X-H{n}: 1\r\n")).collect();
    for (request, status, code) in [
        (format!("GET /v1/me HTTP/1.1\r\nHost: x\r\n{lines}\r\n"), "431", "headers_too_large"),
        ("GET /v1/me\r\n\r\n".to_owned(), "400", "bad_request"),
        ("GET /v1/me HTTP/1.1\r\nHost: x\r\nno header\r\n\r\n".to_owned(), "400", "bad_request"),
    ] {
        for is_first in [true, false] {
            let mut stream = connect(&app).await;
            if !is_first {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
                let mut response = Vec::new();
                while !response.ends_with(b"}") {
                    assert_ne!(stream.read_buf(&mut response).await.unwrap(), 0);
                }
            }
            let response = exchange(stream, request.as_bytes()).await;
            let (head, body) = response.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
            let body: Value = serde_json::from_str(body).unwrap();
            let header = format!("x-request-id: {}", body["requestId"].as_str().unwrap());
            assert!(body["code"] == code && head.lines().any(|line| line == header), "{response}");
            for header in ["x-content-type-options: nosniff", "cache-control: no-store", "connection: close"] {
                assert!(head.lines().any(|line| line == header), "{response}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn static_responses_have_the_same_headers_as_others() {
    let app = App::start().await;
    let anonymous = app.anonymous();
    for path in ["/healthz", "/v1/config"] {
        let call = async |method: Method, origin: Option<&str>, id: &str| {
            let with_headers = |request: reqwest::RequestBuilder| match origin {
                Some(origin) => request.header("origin", origin).header("x-request-id", id),
                None => request.header("x-request-id", id),
            };
            anonymous.send(method, path, with_headers).await
        };
        let first = call(Method::GET, None, "first").await;
        let (second, head) = (call(Method::GET, None, "second").await, call(Method::HEAD, None, "head").await);
        assert_eq!((first.expect(200), first.header("vary")), (second.expect(200), second.header("vary")), "{path}");
        assert_eq!((second.header("x-request-id"), second.header("cache-control")), ("second", "no-store"));
        assert_eq!((head.status, head.header("content-type")), (200, "application/json"));
        let dashboard = call(Method::GET, Some("http://localhost:3000"), "third").await;
        assert_eq!(dashboard.header("access-control-allow-origin"), "http://localhost:3000");
        assert_eq!(
            (call(Method::GET, None, "last").await.header("access-control-allow-origin"), dashboard.status),
            ("", 200)
        );
        assert_eq!(call(Method::DELETE, None, "other").await.status, 405);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_describes_itself() {
    let app = App::start().await;
    let anonymous = app.anonymous();
    assert_eq!(anonymous.get("/healthz").await.expect(200), &json!({ "status": "up" }));
    assert_eq!(anonymous.get("/readyz").await.expect(200), &json!({ "status": "ready" }));
    let config = anonymous.get("/v1/config").await.expect(200).clone();
    assert_eq!((&config["platformDomain"], &config["mailDomain"]), (&json!("localhost"), &json!(null)));
    assert_eq!(app.document.document["openapi"], "3.1.0");
    let docs = anonymous.get("/docs").await;
    assert_eq!((docs.status, docs.header("location")), (307, "/docs/index.html"));
    let index = String::from_utf8(anonymous.get("/docs/index.html").await.bytes).unwrap();
    assert!(!index.contains("https://"), "the page loads resources from another host");
    for file in ["swagger-initializer.js", "swagger-ui-bundle.js", "swagger-ui.css"] {
        assert!(index.contains(file));
        assert_eq!(anonymous.get(&format!("/docs/{file}")).await.status, 200, "{file}");
    }
    let initializer = anonymous.get("/docs/swagger-initializer.js").await;
    assert!(String::from_utf8(initializer.bytes).unwrap().contains("/v1/openapi.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn served_openapi_document_equals_the_committed_one() {
    let app = App::start().await;
    let committed = include_str!("../../../../docs/openapi.json");
    let committed: Value = serde_json::from_str(committed).unwrap();
    let served = app.anonymous().get("/v1/openapi.json").await;
    // `assert_eq!` would print both documents.
    assert!(committed == *served.expect(200), "run `cargo xtask codegen`");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_request_body_holds_no_permit() {
    let app = App::with(|config| config.gateway.max_concurrent_requests = 1).await;
    let ada = app.sign_in("ada").await;
    let head = format!(
        "POST /v1/orgs/ada/projects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{{\"name\":",
        ada.token.as_deref().unwrap()
    );
    let mut slow = connect(&app).await;
    slow.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    // The server waits up to five seconds for the rest of the body. A slow server may still read the head.
    eventually("the permit is free", async || (ada.get("/v1/me").await.status == 200).then_some(())).await;
    slow.write_all(b"\"site\"}").await.unwrap();
    let mut response = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut slow, &mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 201");
}
