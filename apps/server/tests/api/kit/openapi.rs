//! The served OpenAPI document as a judge: every answer that a test sees must be one that it announces.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Map, Value};

use super::Answer;

pub struct Document {
    pub document: Value,
}

impl Document {
    pub fn new(document: Value) -> Self {
        Self { document }
    }

    /// Every operation as method, path and description.
    pub fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().unwrap().iter();
        paths.flat_map(|(path, methods)| {
            methods.as_object().unwrap().iter().map(|(method, operation)| (method.as_str(), path.as_str(), operation))
        })
    }

    /// Fails the test when an answer is not what the document says of its operation.
    pub fn admits(&self, method: &Method, path: &str, answer: &Answer) {
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{}", answer.request);
        let told = match answer.status {
            401 => "www-authenticate",
            405 => "allow",
            429 | 503 => "retry-after",
            _ => "x-request-id",
        };
        assert!(!answer.header(told).is_empty(), "{} answered {} without {told}", answer.request, answer.status);
        if answer.status >= 400 {
            self.fits(&serde_json::json!({ "$ref": "#/components/schemas/Error" }), answer);
            assert_eq!(answer.body["requestId"], answer.header("x-request-id"), "{}", answer.request);
        }
        let Some(operation) = self.operation(method, path) else {
            return;
        };
        let status = answer.status.to_string();
        let described = &operation["responses"][&status];
        if described.is_null() {
            // Refused before the route was reached, as the document says once for all.
            let misspelt = answer.body["code"] == "bad_request" && path.contains('%');
            let before_the_route = [405, 414, 431].contains(&answer.status) || misspelt;
            assert!(before_the_route, "{} answered {status}, which is not documented: {}", answer.request, answer.body);
            return;
        }
        if let Some(schema) = described.pointer("/content/application~1json/schema") {
            self.fits(schema, answer);
        }
    }

    fn fits(&self, schema: &Value, answer: &Answer) {
        let components = self.document["components"]["schemas"].as_object().unwrap();
        let closed: Map<String, Value> =
            components.iter().map(|(name, schema)| (name.clone(), close(schema))).collect();
        let faults = gateway::check(schema, &closed, &answer.body);
        assert!(faults.is_empty(), "{} answered {} against the document: {faults:?}", answer.request, answer.body);
    }

    fn operation(&self, method: &Method, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap();
        let mut candidates: BTreeMap<usize, &Value> = BTreeMap::new();
        for (template, methods) in self.document["paths"].as_object().unwrap() {
            let parts = template.split('/').zip(path.split('/'));
            let same_length = template.split('/').count() == path.split('/').count();
            if same_length
                && parts.clone().all(|(want, have)| want == have || (want.starts_with('{') && !have.is_empty()))
            {
                candidates.insert(parts.filter(|(want, _)| want.starts_with('{')).count(), methods);
            }
        }
        let methods = candidates.into_values().next()?;
        methods.get(method.as_str().to_ascii_lowercase())
    }
}

/// The same schema, admitting no property that it does not name: an answer may not hold more than is documented.
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
