//! The Rust client, written from the OpenAPI document: the document's second reader.
//!
//! What this does not understand of the document, it refuses: a shape that one reader needs to be told about is one
//! that others will stumble over.

mod name;
mod operation;
mod schema;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::file::rustfmt;

/// Path and text of the file. `document` is the text of `docs/openapi.json`.
pub fn file(document: &str) -> Result<(String, String)> {
    let document: Value = serde_json::from_str(document)?;
    let operations = operation::all(&document)?;
    let schemas = document.pointer("/components/schemas").and_then(Value::as_object).context("no schemas")?;
    let reach = |roots: BTreeSet<String>| reachable(schemas, roots);
    let sent = reach(operations.iter().filter_map(|it| it.body_schema.clone()).collect());
    let mut answered: BTreeSet<String> = operations.iter().filter_map(|it| it.answer.clone()).collect();
    answered.insert("Error".to_owned());
    let answered = reach(answered);

    let mut text = String::from(
        "//! Written by `cargo xtask codegen` from `docs/openapi.json`. Left out is what answers no JSON: it is for browsers.\n\
         \n\
         use reqwest::Method;\n\
         use types::*;\n\
         \n\
         use crate::{Call, Client, Paging, Upload};\n\
         \n\
         /// What is sent and answered. Answers may hold more than a type here says; words may be others than were known.\n\
         pub mod types {\n\
         use serde::{Deserialize, Serialize};\n\
         \n\
         use crate::{Page, Secret, words};\n",
    );
    for (name, schema) in schemas {
        let (sent, answered) = (sent.contains(name), answered.contains(name));
        if sent || answered {
            schema::write(&mut text, name, schema, (sent, answered)).with_context(|| name.clone())?;
        }
    }
    for operation in &operations {
        operation.write_parameters(&mut text)?;
    }
    text.push_str("}\n\nimpl Client {");
    for operation in &operations {
        operation.write_method(&mut text)?;
    }
    writeln!(text, "}}")?;
    Ok(("crates/client/src/generated.rs".to_owned(), rustfmt(&text)?))
}

/// The schemas that these refer to, directly or not, and they themselves.
fn reachable(schemas: &Map<String, Value>, roots: BTreeSet<String>) -> BTreeSet<String> {
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
            found.extend(schema::reference(schema));
            object.values().for_each(|it| references(it, found));
        }
        Value::Array(items) => items.iter().for_each(|it| references(it, found)),
        _ => {}
    }
}

/// A description as the comment of what follows.
fn comment(text: &mut String, description: Option<&str>) -> Result<()> {
    for line in description.unwrap_or_default().lines() {
        writeln!(text, "/// {line}")?;
    }
    Ok(())
}
