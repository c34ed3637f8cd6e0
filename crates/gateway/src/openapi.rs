//! The OpenAPI 3.1 document, generated from the routes.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use actix_web::web::Bytes;
use kernel::Code;
use serde_json::{Map, Value, json};

use crate::example;
use crate::http::{ErrorDetail, LONG_REQUEST_TIMEOUT, Operation, PolicyTarget, Routes, Schemas};
use crate::json_schema::referenced_component;
use crate::problem::ErrorFormat;
use crate::protocol;

/// The document as it is served, and the configuration of the page that shows it.
pub(crate) struct Reference {
    routes: Routes,
    document: OnceLock<Bytes>,
    pub(crate) swagger: Arc<utoipa_swagger_ui::Config<'static>>,
}

impl Reference {
    pub(crate) fn of(routes: Routes) -> Self {
        let swagger = Arc::new(utoipa_swagger_ui::Config::from("/v1/openapi.json"));
        Self { routes, document: OnceLock::new(), swagger }
    }

    /// Returns the routes that the document describes.
    pub(crate) fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the document. The first call creates it, because few processes serve it.
    pub(crate) fn document(&self) -> Bytes {
        self.document.get_or_init(|| format!("{:#}", document(&self.routes)).into()).clone()
    }
}

/// Returns the JSON Schema (2020-12) of the messages between the control plane and its nodes. It describes the desired
/// state, and under `$defs` the reports and the other request and response bodies of the internal routes.
#[must_use]
pub fn node_schema(internal: &Routes) -> Value {
    let mut defs = BTreeMap::new();
    for operation in internal.operations() {
        defs.extend(operation.schemas.iter().map(|(name, schema)| (name.clone(), schema.clone())));
    }
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The desired state and the reports of a node",
        "$ref": "#/components/schemas/Desired",
        "$defs": defs,
    });
    rewrite_references(&mut schema);
    // Sort explicitly, because other crates may enable a feature of serde_json that preserves the insertion order.
    schema.sort_all_objects();
    schema
}

/// Rewrites references so that they point into `$defs`.
fn rewrite_references(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref") {
                *reference = reference.replace("#/components/schemas/", "#/$defs/");
            }
            object.values_mut().for_each(rewrite_references);
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite_references),
        _ => {}
    }
}

/// Returns the document: every route with its role and scope, every status with its codes.
#[must_use]
pub fn document(routes: &Routes) -> Value {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut schemas = Schemas::of(&[routes]).into_all();
    example::complete(&mut schemas);
    for operation in routes.operations() {
        let method = operation.method.as_str().to_ascii_lowercase();
        let mut described = describe(operation, routes);
        add_examples(operation, &mut described, &schemas);
        paths.entry(operation.path).or_default().insert(method, described);
    }
    let schemas = reachable(&json!(paths), schemas);
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hosting platform control API",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
            "description": "All errors have the same shape, except below `/oauth`, where they have that of RFC 6749, \
                and below `/v1/hooks`, where they have no body. Rely on `code`, not on the message. `x-place` is what \
                the operation protects; `open` means that it protects nothing. `x-role` is the minimum role in the \
                organization and `x-scope` the scope that a token needs. `x-session-only` states whether the operation \
                needs a login session instead of a token. `x-limited-token` states whether it accepts a token that is \
                restricted to an organization or to some of its projects or zones. `x-timeout-seconds` is the longest \
                time until the response of an operation that waits for a node. Requests that fail before a route is \
                found receive the same error shape. Examples are a path that is not UTF-8, an unsupported method, \
                headers that are too large, and a server at capacity.",
        },
        "servers": [{ "url": "/", "description": "The installation that serves this document." }],
        "tags": tags(routes),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "session": { "type": "http", "scheme": "bearer", "description": "A login session: svc_ses_…" },
                "token": { "type": "http", "scheme": "bearer", "description": "A personal access token: svc_pat_…" },
                "app": {
                    "type": "http",
                    "scheme": "bearer",
                    "bearerFormat": "JWT",
                    "description": "An access token of a connected app (RFC 9068).",
                },
                "basic": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "A personal access token as the password; the user name is ignored.",
                },
                "client": {
                    "type": "http",
                    "scheme": "basic",
                    "description": "The ID and the secret of a confidential client (RFC 6749 section 2.3.1).",
                },
            },
        },
    });
    document.sort_all_objects();
    document
}

/// Returns the components to which the paths refer, directly or indirectly. Omits the schemas of query parameters and
/// flattened structs, which are only used to check requests.
fn reachable(paths: &Value, mut all: Map<String, Value>) -> Map<String, Value> {
    let mut reached = Map::new();
    let mut pending = vec![paths.clone()];
    while let Some(value) = pending.pop() {
        if let Some((name, schema)) = referenced_component(&value).and_then(|name| all.remove_entry(name)) {
            pending.push(schema.clone());
            reached.insert(name, schema);
        }
        match value {
            Value::Object(object) => pending.extend(object.into_iter().map(|(_, value)| value)),
            Value::Array(items) => pending.extend(items),
            _ => {}
        }
    }
    reached
}

/// Returns the areas as tags, sorted by name.
fn tags(routes: &Routes) -> Value {
    let areas: BTreeMap<_, _> = routes.areas().collect();
    areas.into_iter().map(|(name, about)| json!({ "name": name, "description": about })).collect()
}

fn describe(operation: &Operation, routes: &Routes) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.area],
        "summary": operation.summary,
        "parameters": operation.parameters,
        "responses": responses(operation, routes),
        "x-place": target_name(operation.target),
        "x-role": operation.role,
        "x-scope": operation.scope,
        "x-session-only": operation.session_only,
        "x-limited-token": operation.accepts_restricted_tokens,
        "security": security(operation),
    });
    if let Some(object) = described.as_object_mut() {
        object.extend(operation.body.clone().map(|body| ("requestBody".to_owned(), body)));
        object.extend(operation.description.map(|description| ("description".to_owned(), json!(description))));
        if operation.waits_for_node {
            object.insert("x-timeout-seconds".to_owned(), json!(LONG_REQUEST_TIMEOUT.as_secs()));
        }
    }
    described
}

/// Adds the examples of an operation's JSON bodies: of its request, of each success, and of each error with a described
/// field in its `details`.
fn add_examples(operation: &Operation, described: &mut Value, schemas: &Map<String, Value>) {
    let successes = operation.successes.iter().map(|(status, ..)| format!("/responses/{status}/content"));
    for pointer in successes.chain(["/requestBody/content".to_owned()]) {
        if let Some(content) = described.pointer_mut(&pointer) {
            example::add(content, schemas);
        }
    }
    for ErrorDetail { code, field, schema } in &operation.error_details {
        let pointer = format!("/responses/{}/content/application~1json", protocol::status(code).as_u16());
        if let Some(media) = described.pointer_mut(&pointer).and_then(Value::as_object_mut)
            && let Ok(detail) = example::compose(schema, schemas)
        {
            let details = json!({ *field: detail });
            let error = json!({ "code": code.name, "message": code.meaning, "details": details, "requestId": "req-1" });
            let examples = media.entry("examples").or_insert_with(|| json!({}));
            examples.as_object_mut().map(|examples| examples.insert(code.name.to_owned(), json!({ "value": error })));
        }
    }
}

fn security(operation: &Operation) -> Value {
    match operation.target {
        // The header is optional: a public client has no secret, and a confidential client can send its secret in the
        // form.
        PolicyTarget::Open if operation.authenticates_client => json!([{ "client": [] }, {}]),
        PolicyTarget::Open => json!([]),
        _ if operation.session_only => json!([{ "session": [] }]),
        _ if operation.scope.is_none() => json!([{ "token": [] }, { "basic": [] }]),
        _ => json!([{ "session": [] }, { "token": [] }, { "app": [] }, { "basic": [] }]),
    }
}

fn responses(operation: &Operation, routes: &Routes) -> Value {
    let mut responses = Map::new();
    let links = links(operation, routes);
    for (status, content_type, schema) in &operation.successes {
        let mut answer = Map::from_iter([("description".to_owned(), json!("Success."))]);
        if !content_type.is_empty() {
            let schema = schema.clone().unwrap_or_else(|| json!({}));
            answer.insert("content".to_owned(), json!({ *content_type: { "schema": schema } }));
        }
        if operation.has_etag {
            let description = "The version of the returned state, for `If-Match`.";
            let header = json!({ "description": description, "required": true, "schema": { "type": "string" } });
            answer.insert("headers".to_owned(), json!({ "ETag": header }));
        }
        if !links.is_empty() {
            answer.insert("links".to_owned(), json!(links));
        }
        responses.insert(status.to_string(), answer.into());
    }
    let mut by_status: BTreeMap<u16, Vec<&Code>> = BTreeMap::new();
    for code in &operation.codes {
        by_status.entry(protocol::status(code).as_u16()).or_default().push(code);
    }
    let format = routes.error_format_of(operation.path);
    let error = |codes: &[&Code]| error_response(codes, &operation.error_details, format);
    responses.extend(by_status.into_iter().map(|(status, codes)| (status.to_string(), error(&codes))));
    responses.insert("default".to_owned(), error(&[]));
    Value::Object(responses)
}

/// Returns the links to follow-up operations, by operation id.
fn links(operation: &Operation, routes: &Routes) -> Map<String, Value> {
    let mut links = Map::new();
    for link in &operation.links {
        let next = routes.operations().find(|next| next.id == link.operation);
        let names = next.into_iter().flat_map(Operation::path_parameters);
        let source = |name: &str| match name {
            name if name == link.parameter => (name.to_owned(), json!(format!("$response.body#{}", link.pointer))),
            name => (name.to_owned(), json!(format!("$request.path.{name}"))),
        };
        let parameters: Map<String, Value> = names.map(source).collect();
        links.insert(link.operation.to_owned(), json!({ "operationId": link.operation, "parameters": parameters }));
    }
    links
}

/// Describes an error. Without a code, it is the response of every other error.
fn error_response(codes: &[&Code], details: &[ErrorDetail], format: &dyn ErrorFormat) -> Value {
    let description = error_description(codes, format);
    let Some((component, code_field)) = format.schema() else { return json!({ "description": description }) };
    let mut schema = json!({ "$ref": format!("#/components/schemas/{component}") });
    if !codes.is_empty() {
        let names = distinct(codes.iter().map(|code| format.wire_code(code).0));
        let mut properties = Map::from_iter([(code_field.to_owned(), json!({ "enum": names }))]);
        let fields = detail_fields(codes, details);
        if component == "Error" && !fields.is_empty() {
            let details = json!({ "type": ["object", "null"], "properties": fields });
            properties.insert("details".to_owned(), details);
        }
        schema = json!({ "allOf": [schema, { "type": "object", "properties": properties }] });
    }
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

/// Returns the schemas of the described fields in the `details` of these codes.
fn detail_fields(codes: &[&Code], details: &[ErrorDetail]) -> Map<String, Value> {
    let details = details.iter().filter(|detail| codes.contains(&detail.code));
    let mut fields: Map<String, Value> =
        details.map(|detail| (detail.field.to_owned(), detail.schema.clone())).collect();
    if codes.contains(&&Code::BAD_REQUEST) {
        let faults = json!({ "type": "array", "items": { "$ref": "#/components/schemas/Fault" } });
        fields.insert("fields".to_owned(), faults);
    }
    fields
}

/// Returns the meanings of the codes that a response can have.
fn error_description(codes: &[&Code], format: &dyn ErrorFormat) -> String {
    if codes.is_empty() {
        return "An error that occurred before the route was reached.".to_owned();
    }
    let lines = codes.iter().map(|code| {
        let (name, meaning) = format.wire_code(code);
        // Without a body, the response has no code.
        format.schema().map_or_else(|| meaning.to_owned(), |_| format!("`{name}`: {meaning}"))
    });
    distinct(lines).join("\n\n")
}

/// Returns each value once. A format can have one code for several others.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

pub(crate) fn target_name(place: PolicyTarget) -> &'static str {
    match place {
        PolicyTarget::Open => "open",
        PolicyTarget::Account => "account",
        PolicyTarget::Org => "org",
        PolicyTarget::Project => "project",
        PolicyTarget::Zone => "zone",
        PolicyTarget::Node => "node",
    }
}
