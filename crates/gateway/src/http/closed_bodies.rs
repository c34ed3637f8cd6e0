//! The check that every JSON body rejects unknown fields, at each level.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Operation;
use crate::json_schema::referenced_component;

/// The keywords that limit the values of a schema. A schema without any of them accepts every value.
const LIMITING: [&str; 7] = ["$ref", "type", "enum", "const", "allOf", "oneOf", "anyOf"];

/// Returns the schemas in the operation's JSON body that accept unknown fields or any value.
pub(super) fn open_schemas(operation: &Operation) -> BTreeSet<String> {
    let body = operation.body.as_ref().and_then(|body| body.pointer("/content/application~1json/schema"));
    let mut walk = Walk { components: &operation.schemas, visited: BTreeSet::new(), open: BTreeSet::new() };
    if let Some(schema) = body {
        walk.visit(schema, "the body");
    }
    walk.open
}

struct Walk<'a> {
    components: &'a BTreeMap<String, Value>,
    visited: BTreeSet<&'a str>,
    open: BTreeSet<String>,
}

impl<'a> Walk<'a> {
    /// Visits a schema within the component `name`.
    fn visit(&mut self, schema: &'a Value, name: &str) {
        if !LIMITING.iter().any(|keyword| schema.get(keyword).is_some()) {
            self.open.insert(format!("any value in {name}"));
        }
        if let Some(component) = referenced_component(schema)
            && self.visited.insert(component)
            && let Some(schema) = self.components.get(component)
        {
            self.visit(schema, component);
        }
        if is_object(schema) {
            match schema.get("additionalProperties") {
                Some(Value::Bool(false)) => {}
                // A map with free names: check the schema of its values.
                Some(values @ Value::Object(_)) => self.visit(values, name),
                _ => drop(self.open.insert(format!("unknown fields in {name}"))),
            }
        }
        let properties =
            schema.get("properties").and_then(Value::as_object).into_iter().flat_map(|fields| fields.values());
        let choices =
            ["allOf", "oneOf", "anyOf", "prefixItems"].into_iter().filter_map(|key| schema.get(key)?.as_array());
        for part in properties.chain(choices.flatten()).chain(schema.get("items")) {
            self.visit(part, name);
        }
    }
}

fn is_object(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "object",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
        _ => schema.get("properties").is_some(),
    }
}
