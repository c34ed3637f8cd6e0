//! Generated types for schemas.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};

use super::comment::comment;
use super::name::{camel, pascal, snake};

/// Returns the name of the referenced schema.
pub fn reference(schema: &Value) -> Option<String> {
    Some(schema.get("$ref")?.as_str()?.strip_prefix("#/components/schemas/")?.to_owned())
}

/// Returns these schemas and all schemas that they reference, directly or indirectly.
pub fn reachable(schemas: &Map<String, Value>, roots: BTreeSet<String>) -> BTreeSet<String> {
    let (mut reached, mut rest) = (BTreeSet::new(), Vec::from_iter(roots));
    while let Some(name) = rest.pop() {
        if let Some(schema) = schemas.get(&name)
            && reached.insert(name)
        {
            references(schema, &mut rest);
        }
    }
    reached
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(object) => {
            found.extend(reference(schema));
            object.values().for_each(|it| references(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| references(it, found)),
        _ => {}
    }
}

/// Writes the type of a named schema. `sent` and `received` select serialization and deserialization.
pub fn write(text: &mut String, name: &str, schema: &Value, (sent, received): (bool, bool)) -> Result<()> {
    writeln!(text)?;
    comment(text, description(schema))?;
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return write_enum(text, name, values);
    }
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
        writeln!(text, "pub type {name} = {};", rust_type(schema)?)?;
        return Ok(());
    };
    if let (2, Some(items), true) = (properties.len(), properties.get("items"), properties.contains_key("nextCursor")) {
        let item = rust_type(items.get("items").context("a page without items")?)?;
        writeln!(text, "pub type {name} = Page<{item}>;")?;
        return Ok(());
    }
    let derived = [(sent, "Serialize"), (received, "Deserialize")].into_iter().filter(|(is, _)| *is);
    let derived: Vec<&str> = derived.map(|(_, name)| name).collect();
    writeln!(text, "#[derive(Debug, Clone, PartialEq, {})]", derived.join(", "))?;
    writeln!(text, "#[serde(rename_all = \"camelCase\")]\npub struct {name} {{")?;
    write_fields(text, schema, properties, sent)?;
    writeln!(text, "}}")?;
    Ok(())
}

/// Returns the description of a schema. A nullable reference has it in its first variant.
fn description(schema: &Value) -> Option<&str> {
    let description = schema.get("description");
    description.or_else(|| schema.pointer("/oneOf/0/description")).and_then(Value::as_str)
}

fn write_enum(text: &mut String, name: &str, values: &[Value]) -> Result<()> {
    writeln!(text, "open_enum! {{\n        pub enum {name} {{")?;
    for value in values {
        let word = value.as_str().context("an enum value that is not a string")?;
        ensure!(pascal(word) != "Other", "the enum value {word} conflicts with the variant Other");
        writeln!(text, "            {} = \"{word}\",", pascal(word))?;
    }
    writeln!(text, "        }}\n    }}")?;
    Ok(())
}

fn write_fields(text: &mut String, schema: &Value, properties: &Map<String, Value>, sent: bool) -> Result<()> {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, property) in properties {
        comment(text, description(property))?;
        let mut rust = rust_type(property).with_context(|| name.clone())?;
        if !required.contains(&name.as_str()) {
            if !rust.starts_with("Option<") {
                rust = format!("Option<{rust}>");
            }
            if sent {
                writeln!(text, "#[serde(skip_serializing_if = \"Option::is_none\")]")?;
            }
        }
        let field = snake(name);
        if camel(&field) != *name {
            writeln!(text, "#[serde(rename = \"{name}\")]")?;
        }
        writeln!(text, "pub {field}: {rust},")?;
    }
    Ok(())
}

/// Returns the Rust type of a schema.
pub fn rust_type(schema: &Value) -> Result<String> {
    if let Some(name) = reference(schema) {
        return Ok(name);
    }
    if let Some(either) = schema.get("oneOf").and_then(Value::as_array) {
        let [value, null] = either.as_slice() else { bail!("unsupported oneOf: {schema}") };
        ensure!(null.get("type").and_then(Value::as_str) == Some("null"), "oneOf without null: {schema}");
        return Ok(format!("Option<{}>", rust_type(value)?));
    }
    match schema.get("type") {
        Some(Value::String(kind)) => plain_type(kind, schema),
        Some(Value::Array(kinds)) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            let (Some(kind), None) = (kinds.next(), kinds.next()) else { bail!("more than one type: {schema}") };
            Ok(format!("Option<{}>", plain_type(kind, schema)?))
        }
        _ => bail!("no type: {schema}"),
    }
}

fn plain_type(kind: &str, schema: &Value) -> Result<String> {
    let format = schema.get("format").and_then(Value::as_str);
    Ok(match (kind, format) {
        ("string", Some("password")) => "Secret".to_owned(),
        ("string", _) => "String".to_owned(),
        ("boolean", _) => "bool".to_owned(),
        ("integer", Some("int32")) => "i32".to_owned(),
        ("integer", _) => "i64".to_owned(),
        ("array", _) => format!("Vec<{}>", rust_type(schema.get("items").context("an array without items")?)?),
        ("object", _) if schema.get("properties").is_some() => bail!("unsupported type: {schema}"),
        ("object", _) => match schema.get("additionalProperties") {
            Some(values @ Value::Object(_)) => {
                format!("std::collections::BTreeMap<String, {}>", rust_type(values)?)
            }
            _ => "serde_json::Map<String, serde_json::Value>".to_owned(),
        },
        _ => bail!("unsupported type: {schema}"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unsupported_schemas_are_rejected() {
        for (schema, expected) in [
            (json!({ "$ref": "#/components/schemas/Role" }), "Role"),
            (json!({ "oneOf": [{ "$ref": "#/components/schemas/Time" }, { "type": "null" }] }), "Option<Time>"),
            (json!({ "type": ["array", "null"], "items": { "type": "string" } }), "Option<Vec<String>>"),
            (json!({ "type": "integer", "format": "int32" }), "i32"),
            (json!({ "type": ["string", "null"], "format": "password" }), "Option<Secret>"),
            (
                json!({ "type": "object", "additionalProperties": { "type": "boolean" } }),
                "std::collections::BTreeMap<String, bool>",
            ),
        ] {
            assert_eq!(rust_type(&schema).unwrap(), expected);
        }
        for schema in [
            json!({}),
            json!({ "type": ["string", "integer"] }),
            json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
            json!({ "type": "object", "properties": { "a": { "type": "string" } } }),
        ] {
            assert!(rust_type(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn optional_fields_and_renamed_fields_have_attributes() {
        let schema = json!({
            "type": "object",
            "required": ["managed_by"],
            "properties": { "managed_by": { "type": ["string", "null"] }, "ttl": { "type": "integer" } },
        });
        let mut text = String::new();
        write(&mut text, "RRset", &schema, (true, false)).unwrap();
        assert!(text.contains("#[serde(rename = \"managed_by\")]\npub managed_by: Option<String>,"), "{text}");
        assert!(text.contains("is_none\")]\npub ttl: Option<i64>,"), "{text}");
        assert!(text.contains("PartialEq, Serialize)]"), "{text}");
    }
}
