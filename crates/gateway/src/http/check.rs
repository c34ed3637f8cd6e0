//! Checking a decoded request against its published schema and its type's own rules, naming every invalid field.

use serde::de::DeserializeOwned;
use serde_json::Value;
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors, ValidationErrorsKind};

use crate::http::Schemas;
use crate::problem::Problem;
use crate::shape::{self, Fault};

/// The value as its type, once the published schema and the type's own rules hold.
pub fn checked<T: DeserializeOwned + Validate + ToSchema>(schemas: &Schemas, value: Value) -> Result<T, Problem> {
    let value: T = decoded(schemas, value, Vec::new())?;
    value.validate().map_err(|errors| Problem::faults(&rule_faults("", &errors)))?;
    Ok(value)
}

/// Deserializes a value that matches its type's published schema. `faults` are those found so far.
pub fn decoded<T: DeserializeOwned + ToSchema>(
    schemas: &Schemas,
    value: Value,
    mut faults: Vec<Fault>,
) -> Result<T, Problem> {
    faults.extend(shape::check(schemas.get(&T::name()), schemas.all(), &value));
    if !faults.is_empty() {
        return Err(Problem::faults(&faults));
    }
    serde_path_to_error::deserialize(value)
        .map_err(|error| Problem::faults(&[fault(error.path().to_string(), error.inner().to_string())]))
}

/// The faults that a type's own rules found. The offending values stay out: one may be a password.
fn rule_faults(path: &str, errors: &ValidationErrors) -> Vec<Fault> {
    let within = |name: &str| {
        if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
    };
    let mut faults = Vec::new();
    for (name, kind) in errors.errors() {
        let name = within(&camel_case(name));
        match kind {
            ValidationErrorsKind::Struct(inner) => faults.extend(rule_faults(&name, inner)),
            ValidationErrorsKind::List(items) => {
                faults.extend(items.iter().flat_map(|(at, inner)| rule_faults(&format!("{name}[{at}]"), inner)));
            }
            ValidationErrorsKind::Field(broken) => faults.extend(broken.iter().map(|rule| {
                let message =
                    rule.message.as_ref().map_or_else(|| format!("breaks the rule {}", rule.code), ToString::to_string);
                fault(name.clone(), message)
            })),
        }
    }
    faults
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

/// A fault at a path; serde calls the whole `.`.
pub fn fault(path: String, message: String) -> Fault {
    let path = if path == "." { String::new() } else { path };
    Fault { path, message }
}
