//! Areas: the tags of the document with their operations.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::{Map, Value};

use super::name::snake;
use super::operation::{self, Operation};
use super::schema::reachable;

pub struct Area {
    /// The name of the generated module.
    pub name: String,
    pub description: String,
    operations: Vec<Operation>,
    /// The schemas used by requests.
    pub request_types: BTreeSet<String>,
    /// The schemas used by responses.
    pub response_types: BTreeSet<String>,
}

/// Returns the areas with at least one generated operation, in the order of the document's tags.
pub fn all(document: &Value, schemas: &Map<String, Value>) -> Result<Vec<Area>> {
    let mut operations = operation::all(document)?;
    let tags = document.get("tags").and_then(Value::as_array).context("no tags")?;
    let mut areas = Vec::new();
    for tag in tags {
        let text = |key: &str| tag.get(key).and_then(Value::as_str).context("a tag without name or description");
        let name = text("name")?;
        let own_operations: Vec<Operation> = operations.extract_if(.., |operation| operation.area == name).collect();
        if !own_operations.is_empty() {
            areas.push(Area::new(name, text("description")?, own_operations, schemas));
        }
    }
    anyhow::ensure!(operations.is_empty(), "operations with a tag that the document does not declare");
    Ok(areas)
}

impl Area {
    fn new(name: &str, description: &str, operations: Vec<Operation>, schemas: &Map<String, Value>) -> Self {
        let sent = reachable(schemas, operations.iter().filter_map(|it| it.body_schema.clone()).collect());
        let answered = reachable(schemas, operations.iter().filter_map(|it| it.response.clone()).collect());
        Self {
            name: snake(name),
            description: description.to_owned(),
            operations,
            request_types: sent,
            response_types: answered,
        }
    }

    /// Returns the schemas used by requests and responses.
    pub fn types(&self) -> impl Iterator<Item = &String> {
        self.request_types.union(&self.response_types)
    }

    /// Generates the types of the operations' query and header parameters.
    pub fn parameters(&self) -> Result<String> {
        let mut text = String::new();
        self.operations.iter().try_for_each(|operation| operation.write_parameters(&mut text))?;
        Ok(text)
    }

    /// Generates the client methods of the operations.
    pub fn methods(&self) -> Result<String> {
        let mut text = "\nimpl Client {".to_owned();
        self.operations.iter().try_for_each(|operation| operation.write_method(&mut text))?;
        text.push_str("}\n");
        Ok(text)
    }
}
