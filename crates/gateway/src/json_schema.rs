//! Validation of JSON against the schemas of the OpenAPI document.
//!
//! serde stops at the first error. The schemas describe the same types, so a request is validated against its published
//! schema, and the response lists all errors.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use kernel::{InvalidField, InvalidFields};
use regex::Regex;
use serde_json::{Map, Value};

use crate::formats;

/// Returns the errors of `value` against `schema`, at most [`InvalidFields::MAX`]. References point into `components`
/// (`#/components/schemas`).
#[must_use]
pub fn validate(schema: &Value, components: &Map<String, Value>, value: &Value) -> Vec<InvalidField> {
    let mut checker = Checker { components, errors: Vec::new() };
    checker.check(schema, value, "");
    checker.errors
}

/// The compiled patterns of the schemas; `None` for a pattern that does not compile.
type Patterns = HashMap<String, Option<Regex>>;

/// The patterns that any thread has compiled.
static COMPILED: LazyLock<Mutex<Patterns>> = LazyLock::new(Mutex::default);

thread_local! {
    /// The patterns of this thread. Clones of a pattern do not share the memory that a match needs, so that threads do
    /// not wait for each other.
    static PATTERNS: RefCell<Patterns> = RefCell::default();
}

/// Returns whether the text matches a pattern of a schema. A pattern that does not compile matches every text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    PATTERNS.with_borrow_mut(|patterns| {
        if !patterns.contains_key(pattern) {
            patterns.insert(pattern.to_owned(), compiled(pattern));
        }
        patterns.get(pattern).and_then(Option::as_ref).is_none_or(|regex| regex.is_match(text))
    })
}

/// Compiles a pattern, once for all threads.
fn compiled(pattern: &str) -> Option<Regex> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.get(pattern) {
        return known.clone();
    }
    let regex = Regex::new(pattern).ok();
    compiled.insert(pattern.to_owned(), regex.clone());
    regex
}

struct Checker<'a> {
    components: &'a Map<String, Value>,
    errors: Vec<InvalidField>,
}

impl Checker<'_> {
    fn report(&mut self, path: &str, message: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let error = InvalidField { path: path.to_owned(), message: message.into() };
        // A value with choices is checked against its own schema too.
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// Returns whether further errors would not be reported.
    fn is_full(&self) -> bool {
        self.errors.len() >= InvalidFields::MAX
    }

    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(name) = referenced_component(schema) {
            let Some(schema) = self.components.get(name) else {
                return self.report(path, format!("unknown schema {name}"));
            };
            return self.check(schema, value, path);
        }
        for part in list(schema, "allOf") {
            self.check(part, value, path);
        }
        let choices = list(schema, "oneOf").iter().chain(list(schema, "anyOf"));
        self.check_choices(&choices.collect::<Vec<_>>(), value, path);
        if !has_type(schema, value) {
            return self.report(path, format!("must be {}", type_names(schema)));
        }
        match value {
            Value::String(text) => self.check_text(schema, text, path),
            Value::Number(number) => self.check_number(schema, number, path),
            Value::Array(items) => self.check_array(schema, items, path),
            Value::Object(object) => self.check_object(schema, object, path),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Checks that one of several choices fits, and otherwise reports the errors of the closest one.
    fn check_choices(&mut self, choices: &[&Value], value: &Value, path: &str) {
        let mut closest: Option<Vec<InvalidField>> = None;
        for choice in choices {
            let mut attempt = Checker { components: self.components, errors: Vec::new() };
            attempt.check(choice, value, path);
            let fits_better = closest.as_ref().is_none_or(|errors| attempt.errors.len() < errors.len());
            let is_null = choice.get("type").and_then(Value::as_str) == Some("null");
            if attempt.errors.is_empty() || (fits_better && !is_null) {
                closest = Some(attempt.errors);
            }
            if closest.as_ref().is_some_and(Vec::is_empty) {
                return;
            }
        }
        self.errors.extend(closest.unwrap_or_default());
        self.errors.truncate(InvalidFields::MAX);
    }

    fn check_text(&mut self, schema: &Value, text: &str, path: &str) {
        let before = self.errors.len();
        if text.contains('\0') {
            return self.report(path, "must not contain U+0000");
        }
        let words = list(schema, "enum");
        if !words.is_empty() && !words.iter().any(|word| word.as_str() == Some(text)) {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            self.report(path, format!("must be one of: {}", words.join(" ")));
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if pattern.is_some_and(|pattern| !matches_pattern(pattern, text)) {
            // The service's own keyword. Without it, the description is the rule, as for the types of `kernel::text!`.
            let rule = ["x-rule", "description"].iter().find_map(|keyword| schema.get(*keyword)?.as_str());
            return self.report(path, format!("must be {}", rule.unwrap_or("a string in the documented format")));
        }
        let length = text.chars().count() as u64;
        if let Some(least) = schema.get("minLength").and_then(Value::as_u64).filter(|least| length < *least) {
            self.report(path, format!("must have at least {least} characters"));
        }
        // The service's own keyword, because JSON Schema counts characters.
        let most_bytes = schema.get("x-max-bytes").and_then(Value::as_u64);
        if let Some(most) = most_bytes.filter(|most| text.len() as u64 > *most) {
            self.report(path, format!("must have at most {most} bytes in UTF-8"));
        } else if let Some(most) = schema.get("maxLength").and_then(Value::as_u64).filter(|most| length > *most) {
            self.report(path, format!("must have at most {most} characters"));
        }
        let format = schema.get("format").and_then(Value::as_str).filter(|_| self.errors.len() == before);
        if let Some(Err(message)) = format.map(|format| formats::check(format, text)) {
            self.report(path, message);
        }
    }

    fn check_number(&mut self, schema: &Value, number: &serde_json::Number, path: &str) {
        let format = schema.get("format").and_then(Value::as_str);
        if format == Some("int64") && number.is_u64() && !number.is_i64() {
            return self.report(path, format!("must be at most {}", i64::MAX));
        }
        let Some(number) = number.as_f64() else { return };
        if let Some(least) = schema.get("minimum").and_then(Value::as_f64).filter(|least| number < *least) {
            self.report(path, format!("must be at least {least}"));
        }
        let bound = (format == Some("int32")).then_some(f64::from(i32::MAX));
        let most = schema.get("maximum").and_then(Value::as_f64).or(bound);
        if let Some(most) = most.filter(|most| number > *most) {
            self.report(path, format!("must be at most {most}"));
        }
    }

    fn check_array(&mut self, schema: &Value, items: &[Value], path: &str) {
        let length = items.len() as u64;
        if let Some(least) = schema.get("minItems").and_then(Value::as_u64).filter(|least| length < *least) {
            self.report(path, format!("must have at least {least} items"));
        }
        if let Some(most) = schema.get("maxItems").and_then(Value::as_u64).filter(|most| length > *most) {
            return self.report(path, format!("must have at most {most} items"));
        }
        let Some(each) = schema.get("items") else { return };
        for (at, item) in items.iter().enumerate() {
            if self.is_full() {
                return;
            }
            self.check(each, item, &format!("{path}[{at}]"));
        }
    }

    fn check_object(&mut self, schema: &Value, object: &Map<String, Value>, path: &str) {
        let within = |name: &str| field_path(path, name);
        let most = schema.get("maxProperties").and_then(Value::as_u64);
        if let Some(most) = most.filter(|most| object.len() as u64 > *most) {
            return self.report(path, format!("must have at most {most} names"));
        }
        for name in list(schema, "required").iter().filter_map(Value::as_str) {
            if !object.contains_key(name) {
                self.report(&within(name), "is missing");
            }
        }
        let known = schema.get("properties").and_then(Value::as_object);
        // Whether a map is sorted depends on the features that other crates enable for serde_json.
        let mut fields: Vec<_> = object.iter().collect();
        fields.sort_unstable_by_key(|(name, _)| *name);
        for (name, value) in fields {
            if self.is_full() {
                return;
            }
            if let Some(rule) = schema.get("propertyNames") {
                self.check(rule, &Value::String(name.clone()), &within(name));
            }
            match known.and_then(|known| known.get(name)).or_else(|| schema.get("additionalProperties")) {
                Some(Value::Bool(false)) => self.report(&within(name), "is not a field of this request"),
                Some(schema) => self.check(schema, value, &within(name)),
                None => {}
            }
        }
    }
}

/// Returns the path of a field in the object at `path`.
pub(crate) fn field_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the name of the component that a schema refers to.
pub(crate) fn referenced_component(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.rsplit('/').next()
}

fn list<'a>(schema: &'a Value, key: &str) -> &'a [Value] {
    schema.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn has_type(schema: &Value, value: &Value) -> bool {
    let types = types(schema);
    types.is_empty()
        || types.iter().any(|name| match *name {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            _ => false,
        })
}

fn type_names(schema: &Value) -> String {
    let names = types(schema).into_iter().map(|name| match name {
        "null" => "null",
        "boolean" => "true or false",
        "string" => "a string",
        "integer" => "an integer",
        "number" => "a number",
        "array" => "an array",
        _ => "an object",
    });
    names.collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(schema: Value, value: Value) -> Vec<(String, String)> {
        let components =
            json!({ "Word": { "type": "string", "pattern": "^[a-z]+$", "description": "lowercase letters" } });
        let components = components.as_object().expect("an object");
        validate(&schema, components, &value).into_iter().map(|fault| (fault.path, fault.message)).collect()
    }

    fn fault(path: &str, message: &str) -> (String, String) {
        (path.to_owned(), message.to_owned())
    }

    #[test]
    fn every_error_is_reported_with_its_path() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["word", "size"],
            "properties": {
                "word": { "$ref": "#/components/schemas/Word" },
                "size": { "type": "integer", "minimum": 1, "maximum": 9 },
                "list": { "type": "array", "maxItems": 2, "items": { "$ref": "#/components/schemas/Word" } },
                "none": { "oneOf": [{ "type": "null" }, { "$ref": "#/components/schemas/Word" }] },
                "text": { "type": "string", "maxLength": 4, "x-max-bytes": 4 },
            },
        });
        assert_eq!(errors(schema.clone(), json!({ "word": "a", "size": 9, "list": ["b"], "none": null })), []);
        assert_eq!(
            errors(
                schema.clone(),
                json!({ "word": "A\u{0}", "size": 1.5, "list": ["b", 7], "none": "B\u{0}", "text": "ééé", "more": 1 })
            ),
            [
                fault("list[1]", "must be a string"),
                fault("more", "is not a field of this request"),
                fault("none", "must not contain U+0000"),
                fault("size", "must be an integer"),
                fault("text", "must have at most 4 bytes in UTF-8"),
                fault("word", "must not contain U+0000"),
            ]
        );
        assert_eq!(
            errors(schema.clone(), json!({ "size": 10, "list": ["a", "b", "c"] })),
            [
                fault("word", "is missing"),
                fault("list", "must have at most 2 items"),
                fault("size", "must be at most 9")
            ]
        );
        assert_eq!(errors(schema, json!([])), [fault("", "must be an object")]);
    }

    #[test]
    fn rule_of_a_pattern_replaces_the_description_in_the_error() {
        let mut schema = json!({ "type": "string", "pattern": "^[a-z]+$", "description": "The word." });
        schema["x-rule"] = json!("lowercase letters");
        assert_eq!(errors(schema, json!("A")), [fault("", "must be lowercase letters")]);
    }

    #[test]
    fn names_and_values_of_maps_are_checked() {
        let word = json!({ "$ref": "#/components/schemas/Word" });
        let schema = json!({
            "type": "object",
            "propertyNames": word,
            "additionalProperties": { "oneOf": [{ "type": "null" }, word] },
            "maxProperties": 2,
        });
        assert_eq!(errors(schema.clone(), json!({ "a": "b", "c": null })), []);
        let three = json!({ "a": "b", "c": null, "d": 7 });
        assert_eq!(errors(schema.clone(), three), [fault("", "must have at most 2 names")]);
        assert_eq!(
            errors(schema, json!({ "A": "b", "c": 4711 })),
            [fault("A", "must be lowercase letters"), fault("c", "must be a string")]
        );
    }

    #[test]
    fn formats_are_checked_together_with_other_rules() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "at": { "oneOf": [{ "type": "string", "format": "date-time" }, { "type": "null" }] },
                "code": { "type": "string", "pattern": "^[A-Z]{2}$", "description": "two letters", "format": "country-code" },
                "count": { "type": "integer", "format": "int64" },
            },
        });
        let time = "must be a time in the format of RFC 3339, such as 2026-11-21T08:00:00Z";
        let country = "must be an assigned country code of two capital letters (ISO 3166-1 alpha-2)";
        assert_eq!(
            errors(schema.clone(), json!({ "at": "2026-11-21T08:00:00Z", "code": "DE", "count": i64::MAX })),
            []
        );
        assert_eq!(
            errors(schema.clone(), json!({ "at": "now", "code": "XX", "count": u64::MAX, "more": 1 })),
            [
                fault("at", time),
                fault("code", country),
                fault("count", "must be at most 9223372036854775807"),
                fault("more", "is not a field of this request"),
            ]
        );
        // A text that violates the pattern has one error.
        assert_eq!(errors(schema, json!({ "at": null, "code": "Germany" })), [fault("code", "must be two letters")]);
    }

    #[test]
    fn check_stops_after_a_hundred_errors() {
        let list = json!({ "type": "array", "items": { "type": "string" } });
        let closed = json!({ "type": "object", "additionalProperties": false, "properties": {} });
        let numbers = Value::from(vec![1; 50_000]);
        let unknown: Map<String, Value> = (0..50_000).map(|at| (format!("field{at:05}"), Value::Null)).collect();
        let choice = json!({ "oneOf": [{ "type": "null" }, list] });
        let choices = json!({ "type": "array", "items": choice });
        for (schema, value, last) in [
            (list, numbers.clone(), "[99]"),
            (closed, Value::Object(unknown), "field00099"),
            (choice, numbers.clone(), "[99]"),
            (choices, json!([[1, 2], numbers, numbers]), "[1][97]"),
        ] {
            let errors = errors(schema, value);
            assert_eq!((errors.len(), errors.last().map(|(path, _)| path.as_str())), (100, Some(last)));
        }
    }
}
