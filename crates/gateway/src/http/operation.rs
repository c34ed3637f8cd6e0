//! The description of a route, derived from its types.

use std::collections::BTreeMap;

use actix_web::http::Method;
use kernel::{Code, Role, Scope};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::body::DEFAULT_LIMIT;
use super::flattened::flattened;
use super::route_trie::parameters;
use super::upload_kind::UploadKind;
use super::{PathParameter, parameter};
use crate::protocol;

/// The target of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyTarget {
    /// No target. The route needs no credential.
    Open,
    /// The caller's own account.
    Account,
    /// An organization.
    Org,
    /// A project.
    Project,
    /// A zone.
    Zone,
    /// A node, on the internal listener.
    Node,
}

/// The limits of a route's requests.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Whether the route has a longer timeout, because it is an upload, a long poll or a wait for a node.
    pub(crate) long: bool,
    /// Whether the handler waits for a node.
    pub(crate) waits_for_node: bool,
    /// The largest body, in bytes, if the body is read as a whole. `None` for a route without a body.
    pub(crate) body: Option<usize>,
    /// The kind of upload, if the route is one.
    pub(crate) upload: Option<UploadKind>,
}

/// The description of a route, from its types and its registration.
#[derive(Debug, Clone)]
pub struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    /// The area of the route: its tag in the OpenAPI document.
    pub(crate) area: &'static str,
    /// The id of the operation: `area.verb_noun`.
    pub(crate) id: String,
    pub(crate) summary: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) target: PolicyTarget,
    pub(crate) role: Option<Role>,
    pub(crate) scope: Option<Scope>,
    pub(crate) session_only: bool,
    /// Whether the caller is a connected app that authenticates itself, with its secret if it is confidential.
    pub(crate) authenticates_client: bool,
    /// Whether the route accepts a restricted token, for the targets of its restriction.
    pub(crate) accepts_restricted_tokens: bool,
    pub(crate) parameters: Vec<Value>,
    pub(crate) body: Option<Value>,
    /// The limit of the body, in bytes.
    body_limit: usize,
    /// The status, content type and schema of each successful response.
    pub(crate) successes: Vec<(u16, &'static str, Option<Value>)>,
    pub(crate) codes: Vec<&'static Code>,
    /// Fields in the `details` of errors.
    pub(crate) error_details: Vec<ErrorDetail>,
    pub(crate) schemas: BTreeMap<String, Value>,
    /// The names that two or more different schemas share.
    pub(crate) ambiguous_schemas: Vec<String>,
    /// Whether successful responses have an `ETag`.
    pub(crate) has_etag: bool,
    /// Whether the route has a longer timeout, because it is an upload, a long poll or a wait for a node.
    pub(crate) long: bool,
    /// Whether the handler waits for a node.
    pub(crate) waits_for_node: bool,
    /// The kind of upload, if the route is one.
    upload: Option<UploadKind>,
    /// Whether the response never changes while the process runs.
    pub(crate) is_static: bool,
    pub(crate) links: Vec<Link>,
    /// The parameters of the path that no argument of the handler describes.
    pub(crate) undescribed: Vec<&'static str>,
    /// The number of path parameters that arguments of the handler describe, but the path does not have.
    pub(crate) surplus_parameters: usize,
}

/// A link to a follow-up operation. A value in the response is a path parameter of that operation, and `pointer` is the
/// JSON pointer of the value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) operation: &'static str,
    pub(crate) parameter: &'static str,
    pub(crate) pointer: &'static str,
}

/// A field in the `details` of an error.
#[derive(Debug, Clone)]
pub(crate) struct ErrorDetail {
    pub(crate) code: &'static Code,
    pub(crate) field: &'static str,
    pub(crate) schema: Value,
}

impl Operation {
    pub(crate) fn new(method: Method, path: &'static str, area: &'static str, name: &str) -> Self {
        Self {
            method,
            path,
            area,
            id: format!("{area}.{name}"),
            summary: "",
            description: None,
            target: PolicyTarget::Open,
            role: None,
            scope: None,
            session_only: false,
            authenticates_client: false,
            accepts_restricted_tokens: false,
            parameters: Vec::new(),
            body: None,
            body_limit: DEFAULT_LIMIT,
            successes: Vec::new(),
            codes: vec![&Code::INTERNAL, &Code::UNAVAILABLE],
            error_details: Vec::new(),
            schemas: BTreeMap::new(),
            ambiguous_schemas: Vec::new(),
            has_etag: false,
            long: false,
            waits_for_node: false,
            upload: None,
            is_static: false,
            links: Vec::new(),
            undescribed: parameters(path).collect(),
            surplus_parameters: 0,
        }
    }

    /// States that the response never changes while the process runs.
    pub(crate) fn static_response(&mut self) -> &mut Self {
        self.is_static = true;
        self
    }

    /// Returns the names of the path's parameters.
    pub(crate) fn path_parameters(&self) -> impl Iterator<Item = &'static str> {
        parameters(self.path)
    }

    /// Sets the summary, which is one imperative sentence.
    pub fn summary(&mut self, summary: &'static str) -> &mut Self {
        self.summary = summary;
        self
    }

    /// Sets the description, which adds in a few sentences what the summary cannot say.
    pub fn description(&mut self, description: &'static str) -> &mut Self {
        self.description = Some(description);
        self
    }

    /// Adds error codes to those that the route's types imply.
    pub fn codes(&mut self, codes: &[&'static Code]) -> &mut Self {
        for code in codes {
            self.code(code);
        }
        self
    }

    /// Adds an error code, and the type of a field in the error's `details`.
    pub fn error_detail<T: ToSchema>(&mut self, code: &'static Code, field: &'static str) -> &mut Self {
        self.code(code);
        let schema = self.schema::<T>();
        self.error_details.push(ErrorDetail { code, field, schema });
        self
    }

    /// Adds a header to those that the route's types imply.
    pub fn header(&mut self, name: &str, description: &str) -> &mut Self {
        self.parameter("header", name, description, &json!({ "type": "string" }));
        self
    }

    /// Adds a link to a follow-up operation. The value at `pointer` in the response is the path parameter `parameter`
    /// of that operation. Its other path parameters have the same values as in this path.
    pub fn link(&mut self, operation: &'static str, parameter: &'static str, pointer: &'static str) -> &mut Self {
        self.links.push(Link { operation, parameter, pointer });
        self
    }

    pub(crate) fn code(&mut self, code: &'static Code) {
        if !self.codes.contains(&code) {
            self.codes.push(code);
        }
    }

    /// Returns a reference to the schema of a type. Adds the type and all types that it refers to as components.
    pub(crate) fn schema<T: ToSchema>(&mut self) -> Value {
        let mut schemas = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut schemas);
        // A type occurs once for each field that has it.
        let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
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

    /// Sets the description of the body, and its limit in bytes. Also adds the error of a timeout, which every body can
    /// have.
    pub(crate) fn body(&mut self, limit: usize, description: Value) {
        (self.body, self.body_limit) = (Some(description), limit);
        self.code(&protocol::REQUEST_TIMEOUT);
    }

    /// Returns the limits of a request.
    pub(crate) fn limits(&self) -> Limits {
        let Self { long, waits_for_node, upload, .. } = *self;
        Limits { long, waits_for_node, body: self.body.as_ref().map(|_| self.body_limit), upload }
    }

    /// States that the body is an upload.
    pub(crate) fn upload(&mut self, kind: UploadKind) {
        (self.upload, self.long) = (Some(kind), true);
    }

    /// States that the handler waits for a node.
    pub(crate) fn wait_for_node(&mut self) {
        (self.waits_for_node, self.long) = (true, true);
    }

    /// Returns the path pattern.
    #[must_use]
    pub fn path(&self) -> &'static str {
        self.path
    }

    /// Returns the size of the largest body in bytes. Returns `None` for streamed bodies, whose size the service limits.
    #[must_use]
    pub fn max_body_bytes(&self) -> Option<usize> {
        let is_streamed = matches!(self.upload, Some(UploadKind::Bundle | UploadKind::Message));
        (!is_streamed).then_some(self.body_limit)
    }

    /// Describes the next parameter of the path that no argument has claimed, in the order of the handler's arguments.
    pub(crate) fn claim_parameter<P: PathParameter>(&mut self) {
        if self.undescribed.is_empty() {
            self.surplus_parameters += 1;
            return;
        }
        let name = self.undescribed.remove(0);
        self.parameters.push(parameter::path_parameter::<P>(name));
        // 400 for an invalid encoding of the path, 404 for an unknown name.
        self.codes(&[&Code::BAD_REQUEST, &Code::NOT_FOUND]);
    }

    pub(crate) fn parameter(&mut self, place: &str, name: &str, description: &str, schema: &Value) {
        self.parameters.push(parameter::query_or_header_parameter(place, name, description, schema));
    }

    /// States the target, minimum role and scope of a route that needs a credential.
    pub(crate) fn require_caller(&mut self, place: PolicyTarget, role: Option<Role>, scope: Option<Scope>) {
        (self.target, self.role, self.scope) = (place, role, scope);
        self.code(&Code::UNAUTHENTICATED);
        self.code(&Code::RATE_LIMITED);
        if scope.is_some() {
            self.code(&protocol::INSUFFICIENT_SCOPE);
        }
        if role.is_some() {
            self.code(&Code::FORBIDDEN);
            self.code(&Code::NOT_FOUND);
        }
    }
}
