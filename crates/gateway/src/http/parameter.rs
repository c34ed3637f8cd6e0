//! Parameters as the document shows them. One of a path is told by its name: it means the same wherever it stands.

use serde_json::{Value, json};
use utoipa::PartialSchema;

/// Characters that a path can carry: none that the guard refuses, no `.` or `..` of its own.
const SEGMENT: &str = r"^[^\x00-\x1f\x7f-\x9f/.][^\x00-\x1f\x7f-\x9f/]*$";

/// A parameter of the path: its schema where the handler's type has a narrower one than "a text".
pub(super) fn in_path(name: &str, schema: Value) -> Value {
    let (description, example, known) = known(name);
    let is_any_text = schema == json!({ "type": "string" });
    let schema = known.filter(|_| is_any_text).unwrap_or(schema);
    let mut parameter =
        json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema });
    if let Some((example, shown)) = example.zip(parameter.as_object_mut()) {
        shown.insert("example".to_owned(), example);
    }
    parameter
}

/// A parameter of the query or the headers.
pub(super) fn elsewhere(place: &str, name: &str, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": place, "required": false, "description": description, "schema": schema })
}

/// What a parameter means, one of its values, and what any text must be to be one.
fn known(name: &str) -> (&'static str, Option<Value>, Option<Value>) {
    let segment = || Some(json!({ "type": "string", "pattern": SEGMENT }));
    match name {
        "orgSlug" => ("The organization's slug.", Some(json!("acme")), schema::<orgs::Slug>()),
        "projectName" => ("The project's name.", Some(json!("site")), schema::<projects::ProjectName>()),
        "zone" => ("The zone's name, in Unicode or punycode.", Some(json!("example.org")), segment()),
        "name" => ("`@`, a name relative to the zone, or an absolute one.", Some(json!("www")), segment()),
        "type" => ("The type of the records.", Some(json!("A")), schema::<dns::RecordType>()),
        "host" => ("The hostname, in any spelling.", Some(json!("www.example.org")), segment()),
        "file" => ("The file's name.", Some(json!("index.html")), segment()),
        "token" => ("The token of the invitation's link.", None, segment()),
        "version" => ("The deployment's version: 1 for the project's first.", Some(json!(1)), None),
        "userId" => ("The member's user id.", None, None),
        "sessionId" => ("The login session's id.", None, None),
        "tokenId" => ("The personal access token's id.", None, None),
        "keyId" => ("The SSH key's id.", None, None),
        "inviteId" => ("The invitation's id.", None, None),
        _ => ("", None, None),
    }
}

fn schema<T: PartialSchema>() -> Option<Value> {
    serde_json::to_value(T::schema()).ok()
}
