//! The PowerDNS-compatible face, as tools that speak PowerDNS meet it.

mod matrix;
mod refusals;
mod tools;
mod zones;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Answer, App, Caller, client};

const ZONES: &str = "/api/v1/servers/localhost/zones";

/// Whoever calls the face with this key.
#[derive(Clone)]
struct Keyed {
    base: String,
    key: Option<String>,
    client: reqwest::Client,
}

impl Keyed {
    fn new(app: &App, key: Option<&str>) -> Self {
        Self { base: app.base.clone(), key: key.map(str::to_owned), client: client() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body).await
    }

    async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, body).await
    }

    async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, body).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, Value::Null).await
    }

    /// Sends a request; whatever comes back is as the face has it.
    async fn send(&self, method: Method, path: &str, body: Value) -> Answer {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.base));
        if let Some(key) = &self.key {
            request = request.header("X-API-Key", key);
        }
        // Without a content type, as some tools send it.
        if !body.is_null() {
            request = request.body(body.to_string());
        }
        let answer = Answer::read(&method, path, request.send().await.unwrap()).await;
        if answer.status >= 400 {
            let fields: Vec<&str> = answer.body.as_object().expect("an object").keys().map(String::as_str).collect();
            assert_eq!((fields, answer.body["error"].is_string()), (vec!["error"], true), "{}", answer.request);
        }
        let challenge = if answer.status == 401 { "X-API-Key realm=\"PowerDNS\"" } else { "" };
        assert_eq!(answer.header("www-authenticate"), challenge, "{}", answer.request);
        answer
    }
}

/// A refusal with this status, whose message says this.
#[track_caller]
fn refused(answer: &Answer, status: u16, says: &str) {
    let message = answer.body["error"].as_str().unwrap_or_default();
    assert_eq!(answer.status, status, "{}: {}", answer.request, answer.body);
    assert!(message.contains(says), "{}: {message}", answer.request);
}

/// A token of somebody, with these scopes and limits.
async fn key(of: &Caller, scopes: &[&str], restrict: Value) -> String {
    let mut body = json!({ "name": "pdns", "scopes": scopes });
    if !restrict.is_null() {
        body["restrict"] = restrict;
    }
    of.post("/v1/me/tokens", body).await.expect(201)["token"].as_str().unwrap().to_owned()
}

/// Ada with her organization `ada`, and a tool of hers.
async fn world() -> (App, Caller, Keyed) {
    let app = App::start().await;
    let ada = app.sign_in("ada").await;
    let tool = Keyed::new(&app, Some(&key(&ada, &["dns:write"], Value::Null).await));
    (app, ada, tool)
}

fn rrset(name: &str, kind: &str, ttl: u32, records: &[&str]) -> Value {
    let records: Vec<Value> = records.iter().map(|it| json!({ "content": it, "disabled": false })).collect();
    json!({ "name": name, "type": kind, "ttl": ttl, "changetype": "REPLACE", "records": records })
}

fn rrsets(all: &[Value]) -> Value {
    json!({ "rrsets": all })
}

/// What a zone holds besides its SOA: name, type, TTL and contents.
async fn held(tool: &Keyed, zone: &str) -> Vec<(String, String, u64, Vec<String>)> {
    let zone = tool.get(&format!("{ZONES}/{zone}")).await.expect(200).clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = zone["rrsets"].as_array().unwrap().iter().filter(|rrset| rrset["type"] != "SOA");
    all.map(|rrset| {
        let records = rrset["records"].as_array().unwrap().iter().map(|record| text(&record["content"]));
        (text(&rrset["name"]), text(&rrset["type"]), rrset["ttl"].as_u64().unwrap(), records.collect())
    })
    .collect()
}
