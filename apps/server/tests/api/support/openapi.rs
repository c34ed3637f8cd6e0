//! Validation of every response in the tests against the served OpenAPI document.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use gateway::SignInMethods;
use reqwest::{Client, Method};
use serde_json::{Map, Value};

use super::ApiResponse;

pub struct Document {
    pub document: Value,
    /// The schemas of the document, which allow no undocumented properties.
    closed: Map<String, Value>,
    routes: Vec<Route>,
}

/// A path template of the document.
struct Route {
    segments: Vec<String>,
    methods: Value,
}

impl Document {
    /// Returns the document of a server in this process, which depends only on the sign-in methods. It is fetched once
    /// for each of them: it has more than a megabyte.
    pub async fn of(sign_ins: SignInMethods, client: &Client, base: &str) -> Arc<Self> {
        static FETCHED: Mutex<Vec<(SignInMethods, Arc<Document>)>> = Mutex::new(Vec::new());
        let find = || {
            let fetched = FETCHED.lock().unwrap();
            fetched.iter().find(|(known, _)| *known == sign_ins).map(|(_, document)| document.clone())
        };
        if let Some(document) = find() {
            return document;
        }
        let document = Self::fetch(client, base).await;
        FETCHED.lock().unwrap().push((sign_ins, document.clone()));
        document
    }

    /// Fetches the document of the server at this address. Most servers of the tests have the same document, so it is
    /// parsed only once.
    pub async fn fetch(client: &Client, base: &str) -> Arc<Self> {
        static PARSED: Mutex<Vec<(Vec<u8>, Arc<Document>)>> = Mutex::new(Vec::new());
        let response = client.get(format!("{base}/v1/openapi.json")).send().await.unwrap();
        let text = response.error_for_status().unwrap().bytes().await.unwrap().to_vec();
        let mut parsed = PARSED.lock().unwrap();
        if let Some((_, document)) = parsed.iter().find(|(known, _)| *known == text) {
            return document.clone();
        }
        let document = Arc::new(Self::new(serde_json::from_slice(&text).unwrap()));
        parsed.push((text, document.clone()));
        document
    }

    fn new(document: Value) -> Self {
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let closed = schemas.iter().map(|(name, schema)| (name.clone(), close(schema))).collect();
        let paths = document["paths"].as_object().unwrap().iter();
        let routes = paths.map(|(template, methods)| Route {
            segments: template.split('/').map(str::to_owned).collect(),
            methods: methods.clone(),
        });
        let routes = routes.collect();
        Self { document, closed, routes }
    }

    /// Returns all operations, each with its method and path, sorted by path and method.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        let operations = paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(|(method, operation)| ((path.as_str(), method.as_str()), operation))
        });
        operations.collect::<BTreeMap<_, _>>().into_iter().map(|((path, method), operation)| (method, path, operation))
    }

    /// Panics if the document does not allow the response for its operation.
    pub fn assert_allows(&self, method: &Method, path: &str, response: &ApiResponse) {
        assert_eq!(response.header("x-content-type-options"), "nosniff", "{}", response.request);
        let required_header = match response.status {
            401 => "www-authenticate",
            405 => "allow",
            429 | 503 => "retry-after",
            _ => "x-request-id",
        };
        let has_header = !response.header(required_header).is_empty();
        assert!(has_header, "{} returned {} without {required_header}", response.request, response.status);
        if response.status >= 400 && path.starts_with("/v1/hooks/") {
            assert!(response.body.is_null(), "{} returned an error with a body: {}", response.request, response.body);
        } else if response.status >= 400 {
            let has_oauth_errors = path == "/oauth" || path.starts_with("/oauth/");
            let name = if has_oauth_errors { "OAuthError" } else { "Error" };
            let schema = serde_json::json!({ "$ref": format!("#/components/schemas/{name}") });
            self.assert_matches(&schema, response);
            let request_id = (!has_oauth_errors).then(|| response.header("x-request-id"));
            assert_eq!(response.body["requestId"].as_str(), request_id, "{}", response.request);
        }
        let Some(operation) = self.operation(method, path) else {
            return;
        };
        let status = response.status.to_string();
        let described = &operation["responses"][&status];
        if described.is_null() {
            // Errors before routing are documented once, not for each operation.
            let is_malformed_path = response.body["code"] == "bad_request" && path.contains('%');
            let is_before_routing = [405, 414, 431].contains(&response.status) || is_malformed_path;
            assert!(
                is_before_routing,
                "{} returned the undocumented status {status}: {}",
                response.request, response.body
            );
            return;
        }
        if let Some(schema) = described.pointer("/content/application~1json/schema") {
            self.assert_matches(schema, response);
        }
    }

    fn assert_matches(&self, schema: &Value, response: &ApiResponse) {
        let faults = gateway::validate(schema, &self.closed, &response.body);
        assert!(faults.is_empty(), "{} answered {} against the document: {faults:?}", response.request, response.body);
    }

    fn operation(&self, method: &Method, path: &str) -> Option<&Value> {
        let path: Vec<&str> = path.split('?').next().unwrap().split('/').collect();
        // The template with the fewest parameters matches.
        let matching = self.routes.iter().rev().filter(|route| route.matches(&path));
        let route = matching.min_by_key(|route| route.parameters().count())?;
        route.methods.get(method.as_str().to_ascii_lowercase())
    }
}

impl Route {
    fn matches(&self, path: &[&str]) -> bool {
        let is_match = |(expected, actual): (&String, &&str)| {
            expected == actual || (expected.starts_with('{') && !actual.is_empty())
        };
        self.segments.len() == path.len() && self.segments.iter().zip(path).all(is_match)
    }

    fn parameters(&self) -> impl Iterator<Item = &String> {
        self.segments.iter().filter(|segment| segment.starts_with('{'))
    }
}

/// Returns the schema with `additionalProperties: false`, so that a response cannot have undocumented properties.
fn close(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut()
        && object.contains_key("properties")
        && !object.contains_key("allOf")
    {
        object.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    schema
}
