//! What the types of a route say about it.

use std::collections::BTreeMap;

use actix_web::http::Method;
use kernel::{Code, Role, Scope};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::body::DEFAULT_LIMIT;
use super::table::parameters;
use super::{PathParameter, parameter};
use crate::protocol;

/// Where a route takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Anywhere; nobody needs to be signed in.
    Open,
    /// The caller's own account.
    Account,
    /// An organization.
    Org,
    /// A project.
    Project,
    /// A zone.
    Zone,
    /// The internal listener.
    Node,
}

/// The limits of a route's requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Whether it carries a file or waits for a change, and so has a longer timeout.
    pub(crate) long: bool,
    /// The size of its body, in bytes, where that is read as a whole.
    pub(crate) body: usize,
}

/// A route, as its types and its registration describe it.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The area that it belongs to: its tag in the OpenAPI document.
    pub(crate) area: &'static str,
    /// `area.verb_noun`.
    pub(crate) id: String,
    pub(crate) summary: &'static str,
    pub(crate) place: Place,
    pub(crate) role: Option<Role>,
    pub(crate) scope: Option<Scope>,
    pub(crate) session_only: bool,
    /// Whether a token that is limited to a part of what its user reaches serves here, for that part.
    pub(crate) takes_limited: bool,
    pub(crate) parameters: Vec<Value>,
    pub(crate) body: Option<Value>,
    /// The limit of the body, in bytes.
    body_limit: usize,
    /// Status, content type and schema of each way to succeed.
    pub(crate) successes: Vec<(u16, &'static str, Option<Value>)>,
    pub(crate) codes: Vec<&'static Code>,
    pub(crate) schemas: BTreeMap<String, Value>,
    /// Names under which two different schemas were added.
    pub(crate) ambiguous_schemas: Vec<String>,
    /// Whether what succeeds has an `ETag`.
    pub(crate) tagged: bool,
    /// May take longer than any other request: it carries a file.
    pub(crate) long: bool,
    /// Whether it is answered the same for as long as the process lives.
    pub(crate) fixed: bool,
    pub(crate) links: Vec<Link>,
    /// Parameters of the path that no argument of the handler describes.
    pub(crate) undescribed: Vec<&'static str>,
    /// Arguments of the handler that describe a path parameter that the path does not have.
    pub(crate) surplus_parameters: usize,
}

/// What may be done next with what was answered: an operation, the parameter of its path that the answer gives, and where
/// in the answer that is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) operation: &'static str,
    pub(crate) parameter: &'static str,
    pub(crate) pointer: &'static str,
}

impl Operation {
    pub(crate) fn new(method: Method, path: &'static str, area: &'static str, name: &str) -> Self {
        Self {
            method,
            path,
            area,
            id: format!("{area}.{name}"),
            summary: "",
            place: Place::Open,
            role: None,
            scope: None,
            session_only: false,
            takes_limited: false,
            parameters: Vec::new(),
            body: None,
            body_limit: DEFAULT_LIMIT,
            successes: Vec::new(),
            codes: vec![&Code::INTERNAL, &Code::UNAVAILABLE],
            schemas: BTreeMap::new(),
            ambiguous_schemas: Vec::new(),
            tagged: false,
            long: false,
            fixed: false,
            links: Vec::new(),
            undescribed: parameters(path).collect(),
            surplus_parameters: 0,
        }
    }

    /// Says that it is answered the same for as long as the process lives.
    pub(crate) fn fixed(&mut self) -> &mut Self {
        self.fixed = true;
        self
    }

    /// The names of the parameters of the path.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        parameters(self.path)
    }

    /// What the route does, in a sentence.
    pub fn summary(&mut self, summary: &'static str) -> &mut Self {
        self.summary = summary;
        self
    }

    /// Codes that the route may answer beyond those its types imply.
    pub fn codes(&mut self, codes: &[&'static Code]) -> &mut Self {
        for code in codes {
            self.code(code);
        }
        self
    }

    /// A header that the route reads beyond those its types imply.
    pub fn header(&mut self, name: &str, description: &str) -> &mut Self {
        self.parameter("header", name, description, &json!({ "type": "string" }));
        self
    }

    /// An operation that goes on from here; `parameter` of its path is what `pointer` finds in the answer, the others are
    /// those of this path.
    pub fn leads_to(&mut self, operation: &'static str, parameter: &'static str, pointer: &'static str) -> &mut Self {
        self.links.push(Link { operation, parameter, pointer });
        self
    }

    pub(crate) fn code(&mut self, code: &'static Code) {
        if !self.codes.contains(&code) {
            self.codes.push(code);
        }
    }

    /// The schema of a type, by reference; the type and all it refers to become components of the document.
    pub(crate) fn schema<T: ToSchema>(&mut self) -> Value {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        let schemas =
            schemas.into_iter().map(|(name, schema)| (name, serde_json::to_value(schema).unwrap_or_default()));
        let schemas: BTreeMap<String, Value> = schemas.collect();
        for (name, schema) in &schemas {
            let schema = flattened(schema, &schemas);
            if self.schemas.insert(name.clone(), schema.clone()).is_some_and(|known| known != schema) {
                self.ambiguous_schemas.push(name.clone());
            }
        }
        json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
    }

    /// A body with its description in the document and its limit in bytes.
    pub(crate) fn body(&mut self, limit: usize, description: Value) {
        (self.body, self.body_limit) = (Some(description), limit);
    }

    /// The limits of a request.
    pub(crate) fn limits(&self) -> Limits {
        Limits { long: self.long, body: self.body_limit }
    }

    /// Describes the next parameter of the path that no argument has claimed, in the order of the handler's arguments.
    pub(crate) fn claim_parameter<P: PathParameter>(&mut self) {
        if self.undescribed.is_empty() {
            self.surplus_parameters += 1;
            return;
        }
        let name = self.undescribed.remove(0);
        self.parameters.push(parameter::in_path::<P>(name));
        // What the guard says of a path that is misspelt, and what nothing is called.
        self.codes(&[&Code::BAD_REQUEST, &Code::NOT_FOUND]);
    }

    pub(crate) fn parameter(&mut self, place: &str, name: &str, description: &str, schema: &Value) {
        self.parameters.push(parameter::elsewhere(place, name, description, schema));
    }

    /// Somebody must be signed in.
    pub(crate) fn signed_in(&mut self, place: Place, role: Option<Role>, scope: Option<Scope>) {
        (self.place, self.role, self.scope) = (place, role, scope);
        self.code(&Code::UNAUTHENTICATED);
        self.code(&protocol::RATE_LIMITED);
        if scope.is_some() {
            self.code(&protocol::INSUFFICIENT_SCOPE);
        }
        if role.is_some() {
            self.code(&Code::FORBIDDEN);
            self.code(&Code::NOT_FOUND);
        }
    }
}

/// A struct with another one flattened into it, as one object: what a reader expects, and what a client may hold to be
/// all there is.
fn flattened(schema: &Value, schemas: &BTreeMap<String, Value>) -> Value {
    let Some(parts) = schema.get("allOf").and_then(Value::as_array) else {
        return schema.clone();
    };
    let mut whole = schema.clone();
    let (mut properties, mut required) = (serde_json::Map::new(), Vec::new());
    let example_of = |schema: &Value| schema.get("example").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut example = serde_json::Map::new();
    for part in parts {
        let name = part.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
        let part = name.and_then(|name| schemas.get(name)).unwrap_or(part);
        properties.extend(part.get("properties").and_then(Value::as_object).cloned().unwrap_or_default());
        required.extend(part.get("required").and_then(Value::as_array).cloned().unwrap_or_default());
        example.extend(example_of(part));
    }
    example.extend(example_of(schema));
    if let Some(object) = whole.as_object_mut() {
        object.remove("allOf");
        object.extend([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(properties)),
            ("required".to_owned(), Value::Array(required)),
        ]);
        if !example.is_empty() {
            object.insert("example".to_owned(), Value::Object(example));
        }
    }
    whole
}
