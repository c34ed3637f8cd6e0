//! Areas: the tags of the document, each with its operations.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::name::snake;
use super::operation::{self, Operation};
use super::schema::reachable;

pub struct Area {
    /// The name of its module.
    pub name: String,
    pub description: String,
    operations: Vec<Operation>,
    /// The schemas of its requests.
    pub sent: BTreeSet<String>,
    /// The schemas of its responses.
    pub answered: BTreeSet<String>,
}

/// The areas that have an operation for programs, in the order of the document's tags.
pub fn all(document: &Value, schemas: &Map<String, Value>) -> Result<Vec<Area>> {
    let mut operations = operation::all(document)?;
    let tags = document.get("tags").and_then(Value::as_array).context("no tags")?;
    let mut areas = Vec::new();
    for tag in tags {
        let text = |key: &str| tag.get(key).and_then(Value::as_str).context("a tag without name or description");
        let name = text("name")?;
        let own: Vec<Operation> = operations.extract_if(.., |operation| operation.area == name).collect();
        if !own.is_empty() {
            areas.push(Area::new(name, text("description")?, own, schemas));
        }
    }
    anyhow::ensure!(operations.is_empty(), "operations without a tag of the document");
    Ok(areas)
}

impl Area {
    fn new(name: &str, description: &str, operations: Vec<Operation>, schemas: &Map<String, Value>) -> Self {
        let sent = reachable(schemas, operations.iter().filter_map(|it| it.body_schema.clone()).collect());
        let answered = reachable(schemas, operations.iter().filter_map(|it| it.answer.clone()).collect());
        Self { name: snake(name), description: description.to_owned(), operations, sent, answered }
    }

    /// The schemas of its requests and responses.
    pub fn types(&self) -> impl Iterator<Item = &String> {
        self.sent.union(&self.answered)
    }

    /// The types of its operations' queries and headers.
    pub fn parameters(&self) -> Result<String> {
        let mut text = String::new();
        self.operations.iter().try_for_each(|operation| operation.write_parameters(&mut text))?;
        Ok(text)
    }

    /// The client's methods for its operations.
    pub fn methods(&self) -> Result<String> {
        let mut text = "\nimpl Client {".to_owned();
        self.operations.iter().try_for_each(|operation| operation.write_method(&mut text))?;
        text.push_str("}\n");
        Ok(text)
    }
}
