//! Collisions between routes, and bodies that accept unknown fields.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::closed_bodies::open_schemas;
use super::route_trie::shape;
use super::schemas::error_schemas;
use super::{Operation, Routes};

/// The collisions, one sentence each. A server with collisions does not start.
#[derive(Debug, PartialEq, Eq)]
pub struct Collisions(pub Vec<String>);

impl fmt::Display for Collisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the routes are invalid: {}", self.0.join("; "))
    }
}

impl std::error::Error for Collisions {}

/// The first registration under each key.
struct Registry<K, V>(BTreeMap<K, (V, String)>);

impl<K: Ord, V: PartialEq> Registry<K, V> {
    fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Registers a value. Returns the origin of an earlier, different value under this key.
    fn conflict(&mut self, key: K, value: V, place: &str) -> Option<&str> {
        match self.0.entry(key) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert((value, place.to_owned()));
                None
            }
            std::collections::btree_map::Entry::Occupied(first) => {
                let (known, place) = first.into_mut();
                (*known != value).then_some(place.as_str())
            }
        }
    }
}

/// Checks the routes of one listener.
///
/// # Errors
/// Returns an error if areas, operations, schemas or path parameters share a name with different meanings, if
/// operations share a route or an id, if the parameters of an operation do not match its path, or if the JSON body of
/// an operation accepts unknown fields at some level.
pub(super) fn check(all: &[&Routes]) -> Result<(), Collisions> {
    let mut found = Vec::new();
    let operations = || all.iter().flat_map(|routes| routes.operations());
    areas(all, &mut found);
    let (mut ids, mut routes, mut patterns) = (Registry::new(), Registry::new(), Registry::new());
    for (number, operation) in operations().enumerate() {
        let place = name(operation);
        if let Some(other) = ids.conflict(operation.id.as_str(), number, &place) {
            found.push(format!("{other} and {place} share the id {}", operation.id));
        }
        let shape = shape(operation.path);
        if let Some(other) = routes.conflict((shape.clone(), operation.method.as_str()), number, &operation.id) {
            found.push(format!("{other} and {} share the route {place}", operation.id));
        }
        if let Some(other) = patterns.conflict(shape, operation.path, operation.path) {
            found.push(format!("{other} and {} differ only in the names of their parameters", operation.path));
        }
        found.extend(operation.undescribed.iter().map(|name| format!("{place} does not describe {{{name}}}")));
        found.extend(open_schemas(operation).iter().map(|open| format!("{place} accepts {open}")));
        if operation.surplus_parameters > 0 {
            found.push(format!("{place} describes more parameters than its path has"));
        }
    }
    schemas(operations(), &mut found);
    parameters(operations(), &mut found);
    if found.is_empty() { Ok(()) } else { Err(Collisions(found)) }
}

fn name(operation: &Operation) -> String {
    format!("{} {}", operation.method, operation.path)
}

fn areas(all: &[&Routes], found: &mut Vec<String>) {
    let mut areas = Registry::new();
    for (area, description) in all.iter().flat_map(|routes| routes.areas()) {
        if areas.conflict(area, description, "").is_some() {
            found.push(format!("the area {area} has two descriptions"));
        }
    }
}

fn schemas<'a>(operations: impl Iterator<Item = &'a Operation>, found: &mut Vec<String>) {
    let error_schemas = error_schemas();
    let mut schemas = Registry::new();
    for (schema, value) in &error_schemas {
        schemas.conflict(schema.as_str(), value, "the error envelope");
    }
    for operation in operations {
        let place = name(operation);
        found
            .extend(operation.ambiguous_schemas.iter().map(|schema| format!("{place} has two schemas named {schema}")));
        for (schema, value) in &operation.schemas {
            if let Some(other) = schemas.conflict(schema.as_str(), value, &place) {
                found.push(format!("{other} and {place} have different schemas named {schema}"));
            }
        }
    }
}

fn parameters<'a>(operations: impl Iterator<Item = &'a Operation>, found: &mut Vec<String>) {
    let text = |parameter: &Value, key: &str| parameter.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut in_paths = Registry::new();
    for operation in operations {
        let place = name(operation);
        let mut own = Registry::new();
        for (number, parameter) in operation.parameters.iter().enumerate() {
            let (at, parameter_name) = (text(parameter, "in"), text(parameter, "name"));
            if own.conflict((at.clone(), parameter_name.clone()), number, "").is_some() {
                found.push(format!("{place} has two {at} parameters named {parameter_name}"));
            }
            if at == "path"
                && let Some(other) = in_paths.conflict(parameter_name.clone(), parameter, &place)
            {
                found.push(format!("{{{parameter_name}}} has different meanings in {other} and {place}"));
            }
        }
    }
}
