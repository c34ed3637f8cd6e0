//! Malformed requests to every route: unknown fields, and invalid cursors. Incomplete requests.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::overload::{connect, read_response};
use crate::support::{App, Caller};

/// Fills the path template with resources that exist, or with ids that do not.
fn path(template: &str, operation: &Value) -> String {
    let mut path = template.replace("{orgSlug}", "acme").replace("{projectName}", "site");
    path = path.replace("{zone}", "example.org").replace("{name}", "www").replace("{type}", "A");
    path = path.replace("{secretName}", "API_KEY").replace("{userCode}", "BCDF-GHJK");
    path = path.replace("{repoName}", "app").replace("{domainName}", "example.org");
    path = path.replace("{address}", "ada@example.org").replace("{provider}", "codehost");
    path = path.replace("{host}", "www.example.org");
    for parameter in operation["parameters"].as_array().unwrap() {
        let pattern = parameter["schema"]["pattern"].as_str().and_then(|pattern| pattern.strip_prefix('^'));
        if let Some((prefix, _)) = pattern.and_then(|pattern| pattern.split_once("_[0-7]")) {
            let name = parameter["name"].as_str().unwrap();
            path = path.replace(&format!("{{{name}}}"), &format!("{prefix}_01h455vb4pex5vsknk084sn02q"));
        }
    }
    assert!(!path.contains('{'), "the test knows no value for a parameter of {template}");
    path
}

/// Adds an unknown field to each object in the value in turn, and returns the results with the field's path.
fn with_unknown_field(value: &Value) -> Vec<(String, Value)> {
    let mut pointers = vec![String::new()];
    let mut at = 0;
    while let Some(pointer) = pointers.get(at).cloned() {
        at += 1;
        match value.pointer(&pointer).unwrap() {
            Value::Object(fields) => pointers.extend(fields.keys().map(|name| format!("{pointer}/{name}"))),
            Value::Array(items) => pointers.extend((0..items.len()).map(|at| format!("{pointer}/{at}"))),
            _ => {}
        }
    }
    let extend = |pointer: String| {
        let mut changed = value.clone();
        changed.pointer_mut(&pointer)?.as_object_mut()?.insert("unknownField".to_owned(), json!(null));
        let path = pointer.split('/').skip(1).chain(["unknownField"]).fold(String::new(), |path, part| {
            if part.parse::<usize>().is_ok() {
                format!("{path}[{part}]")
            } else if path.is_empty() {
                part.to_owned()
            } else {
                format!("{path}.{part}")
            }
        });
        Some((path, changed))
    };
    pointers.into_iter().filter_map(extend).collect()
}

/// Signs in Ada, and creates the resources that [`path`] uses.
async fn acme(app: &App) -> Caller {
    let ada = app.sign_in("ada").await;
    ada.post("/v1/orgs", json!({ "slug": "acme" })).await.expect(201);
    ada.post("/v1/orgs/acme/projects", json!({ "name": "site" })).await.expect(201);
    ada.post("/v1/orgs/acme/projects/site/repos", json!({ "name": "app" })).await.expect(201);
    ada.post("/v1/orgs/acme/dns/zones", json!({ "name": "example.org" })).await.expect(200);
    ada
}

#[tokio::test(flavor = "multi_thread")]
async fn body_with_an_unknown_field_at_any_level_is_rejected() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let mut paths = Vec::new();
    for (method, template, operation) in app.document.operations() {
        let Some(example) = operation.pointer("/requestBody/content/application~1json/example") else { continue };
        let (method, at): (Method, _) = (method.to_ascii_uppercase().parse().unwrap(), path(template, operation));
        for (path, body) in with_unknown_field(example) {
            let response = ada.send(method.clone(), &at, |request| request.json(&body)).await;
            let fields = response.expect_error(400, "bad_request")["details"]["fields"].clone();
            // In a map, an unknown key is not an unknown field.
            if path == "secrets.unknownField" {
                assert_eq!(fields[0]["path"], path);
                continue;
            }
            let expected = json!([{ "path": path, "message": "is not a field of this request" }]);
            assert_eq!(fields, expected, "{method} {template}");
            paths.push(path);
        }
    }
    for nested in ["ds[0].unknownField", "rrsets[0].unknownField", "restrict.unknownField"] {
        assert!(paths.iter().any(|path| path == nested), "no request has {nested}: {paths:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cursor_with_nul_is_rejected_by_every_listing() {
    let app = App::start().await;
    let ada = acme(&app).await;
    let mut listings = 0;
    for (method, template, operation) in app.document.operations() {
        let is_parameter = |parameter: &Value| parameter["name"] == "cursor" && parameter["in"] == "query";
        if !operation["parameters"].as_array().unwrap().iter().any(is_parameter) {
            continue;
        }
        assert_eq!(method, "get");
        for key in [r#""\u0000""#, r#""a\u0000.example""#, r#"["\u0000"]"#, r#"{"name":"\u0000"}"#] {
            let cursor = URL_SAFE_NO_PAD.encode(key);
            let response = ada.get(&format!("{}?cursor={cursor}", path(template, operation))).await;
            let fields = &response.expect_error(400, "bad_request")["details"]["fields"];
            assert_eq!(fields[0]["path"], "cursor", "{template}, {key}: {fields}");
        }
        listings += 1;
    }
    assert!(listings > 8, "{listings} listings");
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_head_of_a_later_request_closes_the_connection() {
    let app = App::start().await;
    let mut stream = connect(&app).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let response = read_response(&mut stream).await.unwrap();
    assert!(response.starts_with("http/1.1 200 ") && !response.contains("connection: close"), "{response}");
    stream.write_all(b"G").await.unwrap();
    // An idle connection stays open for longer.
    let closed = timeout(Duration::from_secs(60), stream.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "the connection stays open");
}
