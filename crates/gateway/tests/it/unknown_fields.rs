//! No JSON body accepts an unknown field, at any level.

use gateway::v1::routes;
use gateway::{SignInMethods, internal_routes};
use serde_json::{Map, Value, json};

const UNKNOWN: &str = "unknownField";

/// Returns the documents of both listeners.
fn documents() -> [Value; 2] {
    let public = routes(SignInMethods { dev: true, code_host: true });
    [gateway::document(&public), gateway::document(&internal_routes())]
}

fn components(document: &Value) -> &Map<String, Value> {
    document["components"]["schemas"].as_object().unwrap()
}

/// Returns the schemas of all JSON bodies, by operation.
fn bodies(document: &Value) -> Vec<(&str, &Value)> {
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    let pointer = "/requestBody/content/application~1json/schema";
    operations.filter_map(|operation| Some((operation["operationId"].as_str()?, operation.pointer(pointer)?))).collect()
}

fn resolve<'a>(schema: &'a Value, components: &'a Map<String, Value>) -> &'a Value {
    match schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        Some(name) => resolve(&components[name], components),
        None => schema,
    }
}

/// Returns a value with every field and one item in each list. If a schema has several alternatives, `choice` selects
/// one. The texts and numbers may violate the schema.
fn complete(schema: &Value, components: &Map<String, Value>, choice: usize) -> Value {
    let schema = resolve(schema, components);
    let choices = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
    if let Some(choices) = choices {
        let choices: Vec<_> = choices.iter().filter(|choice| choice["type"] != "null").collect();
        return complete(choices[choice % choices.len()], components, choice);
    }
    if let Some(fields) = schema["properties"].as_object() {
        assert_eq!(schema["additionalProperties"], json!(false), "{schema}");
        return fields.iter().map(|(name, field)| (name.clone(), complete(field, components, choice))).collect();
    }
    if schema["items"].is_object() {
        return json!([complete(&schema["items"], components, choice)]);
    }
    match &schema["type"] {
        kind if *kind == "integer" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("integer"))) => {
            json!(1)
        }
        kind if *kind == "boolean" => json!(true),
        _ if schema["format"] == "date-time" => json!("2026-11-21T08:00:00Z"),
        _ => schema["enum"].get(0).cloned().unwrap_or(json!("x")),
    }
}

/// Adds the unknown field to each object of the value in turn, and returns the results with the field's path.
fn with_unknown_field(value: &Value, path: &str) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    match value {
        Value::Object(fields) => {
            let within = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let mut extended = fields.clone();
            extended.insert(UNKNOWN.to_owned(), json!(1));
            all.push((within(UNKNOWN), Value::Object(extended)));
            for (name, field) in fields {
                all.extend(with_unknown_field(field, &within(name)).into_iter().map(|(path, changed)| {
                    let mut whole = fields.clone();
                    whole.insert(name.clone(), changed);
                    (path, Value::Object(whole))
                }));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                all.extend(with_unknown_field(item, &format!("{path}[{at}]")).into_iter().map(|(path, changed)| {
                    let mut whole = items.clone();
                    whole[at] = changed;
                    (path, Value::Array(whole))
                }));
            }
        }
        _ => {}
    }
    all
}

#[test]
fn each_level_of_a_body_rejects_unknown_fields() {
    let (mut requests, mut nested) = (0, 0);
    for document in documents() {
        let components = components(&document);
        for (operation, schema) in bodies(&document) {
            for choice in 0..3 {
                for (path, request) in with_unknown_field(&complete(schema, components, choice), "") {
                    let errors = gateway::validate(schema, components, &request);
                    let error = errors.iter().find(|error| error.path == path);
                    let message = error.map(|error| error.message.as_str());
                    assert_eq!(message, Some("is not a field of this request"), "{operation}, {path}: {errors:?}");
                    requests += 1;
                    nested += usize::from(path.contains('.'));
                }
            }
        }
    }
    assert!(requests > 60 && nested > 6, "{requests} requests, {nested} with a nested field");
}
