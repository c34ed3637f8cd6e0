//! Parameters as the OpenAPI document shows them.

use serde_json::{Value, json};

/// Characters that a path segment can carry: none that the guard refuses, no `.` or `..` alone.
pub(crate) const SEGMENT: &str = r"^[^\x00-\x1f\x7f-\x9f/.][^\x00-\x1f\x7f-\x9f/]*$";

/// A parameter of the path. Its type is its meaning: the OpenAPI document describes it by its type, whatever its name.
pub trait PathParameter {
    /// One sentence for the OpenAPI document.
    const DESCRIPTION: &'static str;

    /// The JSON schema of its values.
    fn schema() -> Value;

    /// One of its values.
    fn example() -> Option<Value> {
        None
    }
}

/// A parameter of the path.
pub(super) fn in_path<P: PathParameter>(name: &str) -> Value {
    let mut parameter = json!({
        "name": name, "in": "path", "required": true, "description": P::DESCRIPTION, "schema": P::schema(),
    });
    if let Some((example, shown)) = P::example().zip(parameter.as_object_mut()) {
        shown.insert("example".to_owned(), example);
    }
    parameter
}

/// A parameter of the query or the headers.
pub(super) fn elsewhere(place: &str, name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": place, "required": false, "description": description, "schema": schema })
}
