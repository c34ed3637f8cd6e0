//! The PowerDNS-compatible API.

mod errors;
mod matrix;
mod tools;
mod zones;

use reqwest::Method;
use serde_json::{Value, json};
use server::Config;

use crate::support::{ApiResponse, App, Caller, client};

const ZONES: &str = "/api/v1/servers/localhost/zones";

/// A client of the PowerDNS-compatible API with an optional key.
#[derive(Clone)]
struct PdnsClient {
    base: String,
    key: Option<String>,
    client: reqwest::Client,
}

impl PdnsClient {
    fn new(app: &App, key: Option<&str>) -> Self {
        Self { base: app.base.clone(), key: key.map(str::to_owned), client: client() }
    }

    async fn get(&self, path: &str) -> ApiResponse {
        self.send(Method::GET, path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::POST, path, body).await
    }

    async fn put(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::PUT, path, body).await
    }

    async fn patch(&self, path: &str, body: Value) -> ApiResponse {
        self.send(Method::PATCH, path, body).await
    }

    async fn delete(&self, path: &str) -> ApiResponse {
        self.send(Method::DELETE, path, Value::Null).await
    }

    /// Sends a request and checks the format of an error.
    async fn send(&self, method: Method, path: &str, body: Value) -> ApiResponse {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        // Some tools send no content type.
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        let response = ApiResponse::read(&method, path, request.send().await.unwrap()).await;
        if response.status >= 400 {
            let fields: Vec<&str> =
                response.body.as_object().expect("the error is not an object").keys().map(String::as_str).collect();
            assert_eq!((fields, response.body["error"].is_string()), (vec!["error"], true), "{}", response.request);
        }
        let challenge = if response.status == 401 { "X-API-Key realm=\"PowerDNS\"" } else { "" };
        assert_eq!(response.header("www-authenticate"), challenge, "{}", response.request);
        response
    }
}

/// Asserts the status, and that the error message contains this text.
#[track_caller]
fn assert_error(response: &ApiResponse, status: u16, text: &str) {
    let message = response.body["error"].as_str().unwrap_or_default();
    assert_eq!(response.status, status, "{}: {}", response.request, response.body);
    assert!(message.contains(text), "{}: {message}", response.request);
}

/// Creates a token with these scopes and restrictions.
async fn key(owner: &Caller, scopes: &[&str], restrict: Value) -> String {
    let mut body = json!({ "name": "pdns", "scopes": scopes });
    if !restrict.is_null() {
        body["restrict"] = restrict;
    }
    owner.post("/v1/me/tokens", body).await.expect(201)["token"].as_str().unwrap().to_owned()
}

/// Returns a deployment, Ada with her organization `ada`, and a client with her key.
async fn setup() -> (App, Caller, PdnsClient) {
    setup_with(|_| {}).await
}

async fn setup_with(change: impl FnOnce(&mut Config)) -> (App, Caller, PdnsClient) {
    let app = App::with(change).await;
    let ada = app.sign_in("ada").await;
    let tool = PdnsClient::new(&app, Some(&key(&ada, &["dns:write"], Value::Null).await));
    (app, ada, tool)
}

fn rrset(name: &str, kind: &str, ttl: u32, records: &[&str]) -> Value {
    let records: Vec<Value> = records.iter().map(|it| json!({ "content": it, "disabled": false })).collect();
    json!({ "name": name, "type": kind, "ttl": ttl, "changetype": "REPLACE", "records": records })
}

fn rrsets(all: &[Value]) -> Value {
    json!({ "rrsets": all })
}

/// Returns the rrsets of a zone except the SOA: name, type, TTL and contents.
async fn zone_rrsets(tool: &PdnsClient, zone: &str) -> Vec<(String, String, u64, Vec<String>)> {
    let zone = tool.get(&format!("{ZONES}/{zone}")).await.expect(200).clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = zone["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["type"] != "SOA");
    all.map(|rrset| {
        let records = rrset["records"].as_array().unwrap().iter().map(|record| text(&record["content"]));
        (text(&rrset["name"]), text(&rrset["type"]), rrset["ttl"].as_u64().unwrap(), records.collect())
    })
    .collect()
}
