//! Validation of requests against their published schema and the rules of their types.

use kernel::{InvalidField, InvalidFields};
use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors, ValidationErrorsKind};

use crate::http::Schemas;
use crate::json_schema::{self, field_path};
use crate::problem::Problem;

/// Validates a value against its type's published schema and rules, and deserializes it.
pub fn validate<T: DeserializeOwned + Validate + ToSchema>(schemas: &Schemas, value: Value) -> Result<T, Problem> {
    let value: T = decode(schemas, value, Vec::new())?;
    let broken = value.validate().err().map(|errors| rule_errors("", &errors)).unwrap_or_default();
    InvalidFields::ensure_none(broken).map_err(Problem::invalid_fields)?;
    Ok(value)
}

/// Validates a value against its type's published schema, and deserializes it. The error also contains the given
/// `invalid` fields.
pub fn decode<T: DeserializeOwned + ToSchema>(
    schemas: &Schemas,
    value: Value,
    mut invalid: Vec<InvalidField>,
) -> Result<T, Problem> {
    invalid.extend(json_schema::validate(schemas.get(&T::name()), schemas.all(), &value));
    InvalidFields::ensure_none(invalid).map_err(Problem::invalid_fields)?;
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        // serde uses the path `.` for the root.
        let path = if path == "." { String::new() } else { path };
        Problem::invalid_fields(InvalidField::new(path, error.inner()))
    })
}

/// Returns the errors of a type's own rules. Omits the invalid values, because one of them may be a password.
fn rule_errors(path: &str, errors: &ValidationErrors) -> Vec<InvalidField> {
    let mut invalid = Vec::new();
    for (name, kind) in errors.errors() {
        let name = field_path(path, &camel_case(name));
        match kind {
            ValidationErrorsKind::Struct(inner) => invalid.extend(rule_errors(&name, inner)),
            ValidationErrorsKind::List(items) => {
                invalid.extend(items.iter().flat_map(|(at, inner)| rule_errors(&format!("{name}[{at}]"), inner)));
            }
            ValidationErrorsKind::Field(broken) => invalid.extend(broken.iter().map(|rule| {
                let message = rule
                    .message
                    .as_ref()
                    .map_or_else(|| format!("violates the rule {}", rule.code), ToString::to_string);
                InvalidField::new(name.clone(), message)
            })),
        }
    }
    invalid
}

fn camel_case(name: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if std::mem::take(&mut upper) => camel.extend(c.to_uppercase()),
            c => camel.push(c),
        }
    }
    camel
}
