//! Parameters in the OpenAPI document.

use kernel::Code;
use serde_json::{Value, json};

use crate::problem::Problem;

/// The pattern of a path segment: no characters that the guard rejects, and not `.` or `..`.
pub(crate) const SEGMENT: &str = r"^[^\x00-\x1f\x7f-\x9f/.][^\x00-\x1f\x7f-\x9f/]*$";

/// A type of path parameters. The OpenAPI document describes a parameter by its type.
pub trait PathParameter {
    /// The description: one sentence for the OpenAPI document.
    const DESCRIPTION: &'static str;

    /// Returns the JSON schema of the parameter's values.
    fn schema() -> Value;

    /// Returns an example value, if there is one.
    fn example() -> Option<Value> {
        None
    }

    /// Returns the error of a value that does not parse.
    fn parse_error() -> Problem {
        Problem::new(&Code::NOT_FOUND, "there is no such resource: the id or the name has the wrong form")
    }
}

/// Describes a path parameter.
pub(super) fn path_parameter<P: PathParameter>(name: &str) -> Value {
    let mut parameter = json!({
        "name": name, "in": "path", "required": true, "description": P::DESCRIPTION, "schema": P::schema(),
    });
    if let Some((example, shown)) = P::example().zip(parameter.as_object_mut()) {
        shown.insert("example".to_owned(), example);
    }
    parameter
}

/// Describes a query parameter or a header.
pub(super) fn query_or_header_parameter(place: &str, name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": place, "required": false, "description": description, "schema": schema })
}
