//! What every route has in common: the envelope for every malformed thing, headers, methods.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::kit::{Answer, App, Caller};

/// The faults that an answer names, as `path: message`.
fn faults(answer: &Answer) -> Vec<String> {
    let fields = answer.refused(400, "bad_request")["details"]["fields"].as_array().unwrap();
    let text = |fault: &Value| format!("{}: {}", fault["path"].as_str().unwrap(), fault["message"].as_str().unwrap());
    fields.iter().map(text).collect()
}

async fn raw(caller: &Caller, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
    let (content_type, body) = (content_type.to_owned(), body.into());
    caller.send(Method::POST, "/v1/orgs", |request| request.header("content-type", content_type).body(body)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_body_is_told_every_fault() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let post = async |body: Value| faults(&ada.post("/v1/orgs", body).await);
    assert_eq!(post(json!({})).await, ["slug: is missing"]);
    assert_eq!(post(json!([])).await, [": must be an object"]);
    let slug = "slug: must be 2 to 40 characters of a-z, 0-9 and -, beginning and ending with a letter or a digit";
    assert_eq!(
        post(json!({ "slug": "Acme!", "name": 7, "extra": null })).await,
        ["extra: is not a field of this request", "name: must be a text", slug]
    );
    assert_eq!(post(json!({ "slug": "admin" })).await, ["slug: is reserved for the platform; choose another"]);
    assert!(post(json!({ "slug": "acme", "name": "a\u{0}b" })).await[0].starts_with("name: must "));
    let members = "/v1/orgs/ada/members";
    assert_eq!(
        faults(&ada.post(members, json!({ "provider": "x", "role": "owner" })).await),
        ["subject: is missing", "provider: must be one of: dev codehost", "role: must be one of: viewer member admin"]
    );
    let login = json!({ "subject": "ada", "email": "nobody" });
    assert_eq!(
        faults(&app.anyone().post("/v1/auth/dev/login", login).await),
        ["email: must be an e-mail address of at most 254 characters, 64 of them before the @"]
    );
    // Nothing of it was half done.
    assert_eq!(ada.get("/v1/orgs").await.expect(200)["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_read_strictly() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let json = "application/json";
    for body in ["", "{", "nul", "{\"slug\":\"a\",\"slug\":\"b\"}", "{} {}", "{\"slug\":\"\u{1}\"}"] {
        let answer = raw(&ada, json, body).await;
        assert!(faults(&answer)[0].starts_with(": is not valid JSON"), "{body} {answer:?}");
    }
    faults(&raw(&ada, json, format!("{}{}", "[".repeat(80), "]".repeat(80))).await);
    faults(&raw(&ada, json, vec![b'"', 0xff, b'"']).await);
    let large = raw(&ada, json, " ".repeat(70_000)).await;
    assert_eq!(large.refused(413, "payload_too_large")["details"]["limit"], 65_536);
    raw(&ada, "text/plain", "{}").await.refused(415, "unsupported_media_type");
    raw(&ada, "application/x-www-form-urlencoded", "slug=acme").await.refused(415, "unsupported_media_type");
    let encoded = ada
        .send(Method::POST, "/v1/orgs", |request| {
            request.header("content-encoding", "gzip").json(&json!({ "slug": "acme" }))
        })
        .await;
    encoded.refused(415, "unsupported_media_type");
    raw(&ada, "application/json; charset=utf-8", r#"{"slug":"acme"}"#).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_without_credential_learns_nothing_of_a_request_s_shape() {
    let app = App::start().await;
    let answer = app.anyone().post("/v1/orgs", json!({ "wrong": true })).await;
    answer.refused(401, "unauthenticated");
    assert_eq!(answer.header("www-authenticate"), "Bearer");
    let ada = app.sign_in("ada").await;
    let bob = app.sign_in("bob").await;
    bob.post("/v1/orgs/ada/projects", json!({ "wrong": true })).await.refused(403, "forbidden");
    ada.post("/v1/orgs/none/projects", json!({ "wrong": true })).await.refused(404, "not_found");
    // An outsider gets the same answer whether or not the project exists.
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    let (real, unreal) = (bob.get("/v1/orgs/ada/projects/site").await, bob.get("/v1/orgs/ada/projects/other").await);
    let without_id = |answer: &Answer| {
        let mut body = answer.refused(403, "forbidden").clone();
        body["requestId"] = Value::Null;
        body
    };
    assert_eq!(without_id(&real), without_id(&unreal));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_and_methods_get_the_envelope() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    for path in ["/", "/v1", "/v1/", "/v1/me/", "/v1/orgs/ada/", "/v1/nothing"] {
        ada.get(path).await.refused(404, "not_found");
    }
    // One spelling for each address: what needs no escape has none.
    for path in ["/v1/%6de", "/v1/orgs/ad%61/members", "/v1/orgs/ada/projects/a%2Db"] {
        ada.get(path).await.refused(400, "bad_request");
    }
    let answer = ada.delete("/v1/me").await;
    answer.refused(405, "method_not_allowed");
    assert_eq!(answer.header("allow"), "GET, HEAD");
    assert_eq!(ada.send(Method::PATCH, "/v1/orgs", |request| request).await.header("allow"), "GET, HEAD, POST");
    let head = ada.send(Method::HEAD, "/v1/me", |request| request).await;
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    for user in ["usr_x", "nonsense", "org_01h455vb4pex5vsknk084sn02q"] {
        ada.delete(&format!("/v1/orgs/ada/members/{user}")).await.refused(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn request_ids_are_kept_when_sane() {
    let app = App::start().await;
    let ask = async |id: &str| {
        let anyone = app.anyone();
        anyone
            .send(Method::GET, "/v1/me", |request| request.header("x-request-id", id))
            .await
            .header("x-request-id")
            .to_owned()
    };
    assert_eq!(ask("build-17.a_b").await, "build-17.a_b");
    for wild in ["a b", "x".repeat(65).as_str(), "<script>"] {
        let id = ask(wild).await;
        assert!(uuid::Uuid::parse_str(&id).is_ok(), "{id}");
    }
    // The audit row names the same request.
    let login = app.anyone();
    let body = json!({ "subject": "ada" });
    login.send(Method::POST, "/v1/auth/dev/login", |request| request.header("x-request-id", "req-1").json(&body)).await;
    let rows = app.db_rows("SELECT request_id, credential FROM store.audit").await;
    assert_eq!(rows, [json!({ "request_id": "req-1", "credential": "none" })]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_carry_the_security_headers_and_cors_is_for_the_dashboard() {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let answer = ada.get("/v1/me").await;
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("access-control-allow-origin", ""),
        ("strict-transport-security", ""),
    ] {
        assert_eq!(answer.header(name), value, "{name}");
    }
    let from = async |origin: &str, method: Method| {
        app.anyone()
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
    for origin in ["http://localhost:3001", "http://localhost:3000.evil.example", "null"] {
        assert_eq!(from(origin, Method::GET).await.header("access-control-allow-origin"), "", "{origin}");
        assert_eq!(from(origin, Method::OPTIONS).await.header("access-control-allow-origin"), "", "{origin}");
    }
}

/// What a server answers to bytes that no HTTP library would send.
async fn wire(app: &App, request: &[u8]) -> String {
    let address = app.base.strip_prefix("http://").unwrap();
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    read.expect("the server closes the connection").unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_too_many_or_misspelt_get_the_envelope() {
    let app = App::start().await;
    let get = async |target: &str, headers: &str| {
        wire(&app, format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n").as_bytes()).await
    };
    let many: String = (0..70).map(|n| format!("X-H{n}: 1\r\n")).collect();
    for (answer, status, code) in [
        (get("/v1/%ff", "").await, "400", "bad_request"),
        (get("/v1/%zz", "").await, "400", "bad_request"),
        (get("/v1/a%00b", "").await, "400", "bad_request"),
        (get(&format!("/{}", "a".repeat(9000)), "").await, "414", "uri_too_long"),
        (get("/v1/me", &many).await, "431", "headers_too_large"),
        (get("/v1/me", &format!("X-Large: {}\r\n", "a".repeat(17_000))).await, "431", "headers_too_large"),
        (get("/v1/me", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n").await, "401", "unauthenticated"),
    ] {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_answered_from_memory_is_answered_alike() {
    let app = App::start().await;
    let anyone = app.anyone();
    for path in ["/healthz", "/v1/config"] {
        let ask = async |method: Method, origin: Option<&str>, id: &str| {
            let dress = |request: reqwest::RequestBuilder| match origin {
                Some(origin) => request.header("origin", origin).header("x-request-id", id),
                None => request.header("x-request-id", id),
            };
            anyone.send(method, path, dress).await
        };
        let first = ask(Method::GET, None, "first").await;
        let (second, head) = (ask(Method::GET, None, "second").await, ask(Method::HEAD, None, "head").await);
        assert_eq!((first.expect(200), first.header("vary")), (second.expect(200), second.header("vary")), "{path}");
        assert_eq!((second.header("x-request-id"), second.header("cache-control")), ("second", "no-store"));
        assert_eq!((head.status, head.header("content-type")), (200, "application/json"));
        let dashboard = ask(Method::GET, Some("http://localhost:3000"), "third").await;
        assert_eq!(dashboard.header("access-control-allow-origin"), "http://localhost:3000");
        assert_eq!(
            (ask(Method::GET, None, "last").await.header("access-control-allow-origin"), dashboard.status),
            ("", 200)
        );
        assert_eq!(ask(Method::DELETE, None, "other").await.status, 405);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_describes_itself() {
    let app = App::start().await;
    let anyone = app.anyone();
    assert_eq!(anyone.get("/healthz").await.expect(200), &json!({ "status": "up" }));
    assert_eq!(anyone.get("/readyz").await.expect(200), &json!({ "status": "ready" }));
    let config = anyone.get("/v1/config").await.expect(200).clone();
    assert_eq!((&config["platformDomain"], &config["mailDomain"]), (&json!("localhost"), &json!(null)));
    assert_eq!(app.document.document["openapi"], "3.1.0");
    let docs = anyone.get("/docs").await;
    assert_eq!((docs.status, docs.header("location")), (307, "/docs/index.html"));
    let index = String::from_utf8(anyone.get("/docs/index.html").await.bytes).unwrap();
    assert!(!index.contains("https://"), "the reference needs no other host");
    for file in ["swagger-initializer.js", "swagger-ui-bundle.js", "swagger-ui.css"] {
        assert!(index.contains(file));
        assert_eq!(anyone.get(&format!("/docs/{file}")).await.status, 200, "{file}");
    }
    let initializer = anyone.get("/docs/swagger-initializer.js").await;
    assert!(String::from_utf8(initializer.bytes).unwrap().contains("/v1/openapi.json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_page_is_the_served_page() {
    let app = App::start().await;
    let written = include_str!("../../../../docs/openapi.json");
    let written: Value = serde_json::from_str(written).unwrap();
    // The documents themselves would fill the screen.
    assert!(written == app.document.document, "run `cargo xtask codegen`");
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_capacity_the_server_refuses_at_once() {
    let app = App::with(|config| config.gateway.in_flight = 1).await;
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs/ada/projects", json!({ "name": "site" })).await.expect(201);
    // An upload that stands still takes the one place there is, unless it met another request there.
    let address = app.base.strip_prefix("http://").unwrap();
    let head = format!(
        "POST /v1/orgs/ada/projects/site/deployments HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/gzip\r\nContent-Length: 1000\r\n\r\n",
        ada.token.as_deref().unwrap()
    );
    let mut tries = 0;
    let (stream, refused) = loop {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let answer = ada.get("/v1/me").await;
        tries += 1;
        if answer.status == 503 || tries == 50 {
            break (stream, answer);
        }
    };
    refused.refused(503, "unavailable");
    assert_eq!(refused.header("retry-after"), "1");
    app.anyone().get("/healthz").await.expect(200);
    drop(stream);
    for _ in 0..100 {
        if ada.get("/v1/me").await.status == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("the place was not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_a_body_slowly_takes_nobody_s_place() {
    let app = App::with(|config| config.gateway.in_flight = 1).await;
    let ada = app.sign_in("ada").await;
    let head = format!(
        "POST /v1/orgs/ada/projects HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{{\"name\":",
        ada.token.as_deref().unwrap()
    );
    let mut slow = tokio::net::TcpStream::connect(app.base.strip_prefix("http://").unwrap()).await.unwrap();
    slow.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    // It is waited for five seconds.
    ada.get("/v1/me").await.expect(200);
    slow.write_all(b"\"site\"}").await.unwrap();
    let mut answer = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut slow, &mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
}
