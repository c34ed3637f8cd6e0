//! The schemas that requests are validated against.

use kernel::InvalidField;
use serde_json::{Map, Value};
use utoipa::{PartialSchema, ToSchema};

use super::Routes;
use crate::problem::Envelope;

/// The components of the OpenAPI document, by name.
#[derive(Debug)]
pub struct Schemas(Map<String, Value>);

impl Schemas {
    pub(crate) fn of(all_routes: &[&Routes]) -> Self {
        let mut all = Map::new();
        for operation in all_routes.iter().flat_map(|routes| routes.operations()) {
            all.extend(operation.schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
        }
        all.extend(error_schemas());
        Self(all)
    }

    pub(crate) fn all(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(crate) fn into_all(self) -> Map<String, Value> {
        self.0
    }

    pub(crate) fn get(&self, name: &str) -> &Value {
        self.0.get(name).unwrap_or(&Value::Null)
    }
}

/// Returns the schemas of errors, to which every operation refers.
pub(super) fn error_schemas() -> [(String, Value); 2] {
    [named::<Envelope>(), named::<InvalidField>()]
}

fn named<T: ToSchema + PartialSchema>() -> (String, Value) {
    (T::name().into_owned(), serde_json::to_value(T::schema()).unwrap_or_default())
}
