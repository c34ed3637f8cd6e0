//! Examples of requests and responses, composed from the examples of their types.
//!
//! A type declares its own example. A struct declares, by field name, examples for only those fields whose types have
//! none. The composed example contains all fields except optional fields that have neither an example nor a default.

use serde_json::{Map, Value, json};

use crate::json_schema::referenced_component;

/// Composes an example of `schema`, whose references point into `components` (`#/components/schemas`).
///
/// # Errors
/// Returns the path of a field without an example, or of an example that belongs to no field.
pub fn compose(schema: &Value, components: &Map<String, Value>) -> Result<Value, String> {
    if let Some(name) = referenced_component(schema) {
        let component = components.get(name).ok_or_else(|| format!("unknown schema {name}"))?;
        return compose(component, components).map_err(|path| format!("{name}.{path}"));
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        return compose_object(schema, properties, components).map(Value::Object);
    }
    if let Some(stated) = stated(schema).or_else(|| schema.get("default")) {
        return Ok(stated.clone());
    }
    if let Some(choices) = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array) {
        return choices.iter().find_map(|choice| compose(choice, components).ok()).ok_or_else(no_example);
    }
    match (schema.get("items"), schema.get("type")) {
        (_, Some(Value::String(kind))) if kind == "null" => Ok(Value::Null),
        (_, Some(Value::Array(kinds))) if kinds.contains(&json!("null")) => Ok(Value::Null),
        (Some(items), _) => Ok(json!([compose(items, components)?])),
        _ => Err(no_example()),
    }
}

fn no_example() -> String {
    "no example".to_owned()
}

/// Returns the example that a schema itself declares.
fn stated(schema: &Value) -> Option<&Value> {
    schema.get("example").or_else(|| schema.get("examples")?.as_array()?.first())
}

fn compose_object(
    schema: &Value,
    properties: &Map<String, Value>,
    components: &Map<String, Value>,
) -> Result<Map<String, Value>, String> {
    let stated_fields = stated(schema).and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(unknown) = stated_fields.keys().find(|name| !properties.contains_key(*name)) {
        return Err(format!("{unknown}: example of an unknown field"));
    }
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut composed = Map::new();
    for (name, property) in properties {
        let value = match stated_fields.get(name) {
            Some(value) => value.clone(),
            None if required.contains(&json!(name))
                || stated(property).is_some()
                || property.get("default").is_some() =>
            {
                compose(property, components).map_err(|path| format!("{name}: {path}"))?
            }
            None => continue,
        };
        composed.insert(name.clone(), value);
    }
    Ok(composed)
}

/// Replaces the partial examples of structs with complete ones that match their schemas.
pub(crate) fn complete(components: &mut Map<String, Value>) {
    let whole: Vec<(String, Value)> = components
        .iter()
        .filter(|(_, schema)| schema.get("properties").is_some() && stated(schema).is_some())
        .filter_map(|(name, schema)| Some((name.clone(), compose(schema, components).ok()?)))
        .collect();
    for (name, example) in whole {
        if let Some(schema) = components.get_mut(&name).and_then(Value::as_object_mut) {
            schema.insert("example".to_owned(), example);
        }
    }
}

/// Adds an example to a JSON body.
pub(crate) fn add(content: &mut Value, components: &Map<String, Value>) {
    if let Some(media) = content.get_mut("application/json").and_then(Value::as_object_mut)
        && let Some(Ok(example)) = media.get("schema").map(|schema| compose(schema, components))
    {
        media.insert("example".to_owned(), example);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components() -> Map<String, Value> {
        let components = json!({
            "Slug": { "type": "string", "examples": ["acme"] },
            "Word": { "type": "string", "enum": ["a", "b"] },
            "Org": {
                "type": "object",
                "required": ["slug", "name", "note", "word", "tags"],
                "example": { "name": "Acme" },
                "properties": {
                    "slug": { "$ref": "#/components/schemas/Slug" },
                    "name": { "type": "string" },
                    "note": { "type": ["string", "null"] },
                    "word": { "oneOf": [{ "$ref": "#/components/schemas/Word" }, { "type": "null" }] },
                    "tags": { "type": "array", "items": { "$ref": "#/components/schemas/Slug" } },
                    "ttl": { "type": "integer", "default": 300 },
                    "hidden": { "type": "string" },
                },
            },
            "Bare": { "type": "object", "required": ["name"], "properties": { "name": { "type": "string" } } },
            "Wrong": { "type": "object", "example": { "nam": "x" }, "properties": { "name": { "type": "string" } } },
        });
        components.as_object().cloned().unwrap()
    }

    fn reference(name: &str) -> Value {
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    #[test]
    fn example_is_composed_of_the_examples_of_its_fields() {
        let expected = json!({
            "slug": "acme", "name": "Acme", "note": null, "word": null, "tags": ["acme"], "ttl": 300,
        });
        assert_eq!(compose(&reference("Org"), &components()), Ok(expected.clone()));
        let mut completed = components();
        complete(&mut completed);
        assert_eq!(completed["Org"]["example"], expected);
        let mut content = json!({ "application/json": { "schema": reference("Slug") } });
        add(&mut content, &completed);
        assert_eq!(content["application/json"]["example"], "acme");
    }

    #[test]
    fn missing_and_unknown_field_examples_are_reported() {
        let errors = [("Bare", "Bare.name: no example"), ("Wrong", "Wrong.nam: example of an unknown field")];
        for (name, expected) in errors {
            assert_eq!(compose(&reference(name), &components()), Err(expected.to_owned()));
        }
    }
}
