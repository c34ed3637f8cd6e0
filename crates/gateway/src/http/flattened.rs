//! Schemas of structs with flattened fields.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::json_schema::referenced_component;

/// Merges the schema of a struct with flattened fields into one object, which is easier to read and lists all fields.
pub(super) fn flattened(schema: &Value, schemas: &BTreeMap<String, Value>) -> Value {
    let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
        return schema.clone();
    };
    let mut whole = schema.clone();
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    let example_of = |schema: &Value| schema.get("example").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut example = serde_json::Map::new();
    for part in parts {
        let part = referenced_component(part).and_then(|name| schemas.get(name)).unwrap_or(part);
        properties.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
        example.extend(example_of(part));
    }
    example.extend(example_of(schema));
    if let Some(object) = whole.as_object_mut() {
        object.remove("allOf");
        object.extend([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(properties)),
            ("required".to_owned(), Value::Array(required)),
        ]);
        if !example.is_empty() {
            object.insert("example".to_owned(), Value::Object(example));
        }
    }
    whole
}
