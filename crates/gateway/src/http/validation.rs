//! Validation of requests against their published schema and the rules of their types.

use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors, ValidationErrorsKind};

use crate::http::Schemas;
use crate::json_schema::{self, FieldError, field_path};
use crate::problem::Problem;

/// Validates a value against its type's published schema and rules, and deserializes it.
pub fn validate<T: DeserializeOwned + Validate + ToSchema>(schemas: &Schemas, value: Value) -> Result<T, Problem> {
    let value: T = decode(schemas, value, Vec::new())?;
    value.validate().map_err(|errors| Problem::validation_errors(&rule_errors("", &errors)))?;
    Ok(value)
}

/// Validates a value against its type's published schema, and deserializes it. The error also contains the given
/// `field_errors`.
pub fn decode<T: DeserializeOwned + ToSchema>(
    schemas: &Schemas,
    value: Value,
    mut field_errors: Vec<FieldError>,
) -> Result<T, Problem> {
    field_errors.extend(json_schema::validate(schemas.get(&T::name()), schemas.all(), &value));
    if !field_errors.is_empty() {
        return Err(Problem::validation_errors(&field_errors));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        Problem::validation_errors(&[field_error(error.path().to_string(), error.inner().to_string())])
    })
}

/// Returns the errors of a type's own rules. Omits the invalid values, because one of them may be a password.
fn rule_errors(path: &str, errors: &ValidationErrors) -> Vec<FieldError> {
    let mut field_errors = Vec::new();
    for (name, kind) in errors.errors() {
        let name = field_path(path, &camel_case(name));
        match kind {
            ValidationErrorsKind::Struct(inner) => field_errors.extend(rule_errors(&name, inner)),
            ValidationErrorsKind::List(items) => {
                field_errors.extend(items.iter().flat_map(|(at, inner)| rule_errors(&format!("{name}[{at}]"), inner)));
            }
            ValidationErrorsKind::Field(broken) => field_errors.extend(broken.iter().map(|rule| {
                let message = rule
                    .message
                    .as_ref()
                    .map_or_else(|| format!("violates the rule {}", rule.code), ToString::to_string);
                field_error(name.clone(), message)
            })),
        }
    }
    field_errors
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

/// Creates the error of a field. serde uses the path `.` for the root.
pub fn field_error(path: String, message: String) -> FieldError {
    let path = if path == "." { String::new() } else { path };
    FieldError { path, message }
}
