//! Generated methods for operations.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::comment::comment;
use super::name::{pascal, snake};
use super::schema::{reference, rust_type};

/// The header that the client adds to idempotent calls.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

pub struct Operation {
    /// The tag.
    pub area: String,
    id: String,
    method: String,
    path: String,
    summary: String,
    /// Whether the operation accepts an idempotency key, so that the client can retry it.
    is_idempotent: bool,
    /// The maximum time until the response, if the operation waits for a node.
    timeout_seconds: Option<u64>,
    query: Vec<Parameter>,
    headers: Vec<Parameter>,
    body: Body,
    /// The schema of the JSON request body.
    pub body_schema: Option<String>,
    /// The schema of the response; `None` for a response without a body.
    pub response: Option<String>,
}

struct Parameter {
    name: String,
    description: String,
    rust: String,
    required: bool,
}

enum Body {
    None,
    Json,
    /// A file with this content type.
    Upload(String),
}

/// Returns all operations whose response is JSON or empty, ordered by id.
pub fn all(document: &Value) -> Result<Vec<Operation>> {
    let paths = document.get("paths").and_then(Value::as_object).context("no paths")?;
    let mut operations = Vec::new();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let read = Operation::read(method, path, operation).with_context(|| format!("{method} {path}"))?;
            operations.extend(read);
        }
    }
    operations.sort_by(|one, other| one.id.cmp(&other.id));
    Ok(operations)
}

impl Operation {
    fn read(method: &str, path: &str, operation: &Value) -> Result<Option<Self>> {
        let Some(response) = response_type(operation)? else { return Ok(None) };
        // Only operations of OAuth have forms. A caller sends a form with `Call::form`.
        if operation.pointer("/requestBody/content/application~1x-www-form-urlencoded").is_some() {
            return Ok(None);
        }
        let text = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let parameters = operation.get("parameters").and_then(Value::as_array).context("no parameters")?;
        let parameters_in = |location: &str| {
            let selected = parameters.iter().filter(|it| it.get("in").and_then(Value::as_str) == Some(location));
            selected.map(Parameter::read).collect::<Result<Vec<_>>>()
        };
        let (idempotency_keys, headers) =
            parameters_in("header")?.into_iter().partition::<Vec<_>, _>(|it| it.name == IDEMPOTENCY_KEY);
        let (body, body_schema) = request_body(operation)?;
        let area = operation.pointer("/tags/0").and_then(Value::as_str).context("no tag")?.to_owned();
        Ok(Some(Self {
            area,
            id: text("operationId"),
            method: method.to_ascii_uppercase(),
            path: path.to_owned(),
            summary: text("summary"),
            is_idempotent: !idempotency_keys.is_empty(),
            timeout_seconds: operation.get("x-timeout-seconds").and_then(Value::as_u64),
            query: parameters_in("query")?,
            headers,
            body,
            body_schema,
            response,
        }))
    }

    /// Writes the types of the query and header parameters.
    pub fn write_parameters(&self, text: &mut String) -> Result<()> {
        for (parameters, name) in [(&self.query, self.query_type()), (&self.headers, self.headers_type())] {
            if parameters.is_empty() || name == "Paging" {
                continue;
            }
            let default = if parameters.iter().any(|it| it.required) { "" } else { ", Default" };
            writeln!(text, "\n#[derive(Debug, Clone, PartialEq{default})]\npub struct {name} {{")?;
            for Parameter { name, description, rust, required } in parameters {
                comment(text, Some(description))?;
                let rust = if *required { rust.clone() } else { format!("Option<{rust}>") };
                writeln!(text, "pub {}: {rust},", snake(name))?;
            }
            writeln!(text, "}}")?;
        }
        Ok(())
    }

    /// Writes the client method.
    pub fn write_method(&self, text: &mut String) -> Result<()> {
        let parameter = |segment: &str| Some(snake(segment.strip_prefix('{')?.strip_suffix('}')?));
        let segments: Vec<&str> = self.path.trim_start_matches('/').split('/').collect();
        let mut arguments: Vec<String> =
            segments.iter().filter_map(|it| parameter(it)).map(|name| format!("{name}: &str")).collect();
        let segments = segments.iter().map(|it| parameter(it).unwrap_or_else(|| format!("\"{it}\"")));
        let segments = segments.collect::<Vec<_>>().join(", ");
        let mut call = format!("self.operation(\"{}\", Method::{}, &[{segments}])", self.id, self.method);
        if self.is_idempotent {
            call += ".idempotent()";
        }
        if let Some(seconds) = self.timeout_seconds {
            write!(call, ".timeout(std::time::Duration::from_secs({seconds}))")?;
        }
        for (parameters, kind, ty) in
            [(&self.query, "query", self.query_type()), (&self.headers, "header", self.headers_type())]
        {
            if !parameters.is_empty() {
                arguments.push(format!("{kind}: &{ty}"));
            }
            for Parameter { name, required, .. } in parameters {
                let field = format!("{kind}.{}", snake(name));
                let value = if *required { format!("Some(&{field})") } else { format!("{field}.as_ref()") };
                write!(call, ".{kind}(\"{name}\", {value})")?;
            }
        }
        match (&self.body, &self.body_schema) {
            (Body::Json, Some(schema)) => {
                arguments.push(format!("body: &{schema}"));
                call += ".json(body)";
            }
            (Body::Upload(content_type), _) => {
                arguments.push("body: Upload".to_owned());
                write!(call, ".upload(\"{content_type}\", body)")?;
            }
            _ => {}
        }
        writeln!(text, "\n/// {}\n///\n/// `{} {}`", self.summary, self.method, self.path)?;
        let response = self.response.as_deref().unwrap_or("()");
        let arguments = arguments.iter().map(|it| format!(", {it}")).collect::<String>();
        writeln!(text, "pub fn {}(&self{arguments}) -> Call<{response}> {{ {call} }}", snake(&self.id))?;
        Ok(())
    }

    fn query_type(&self) -> String {
        let is_page = matches!(self.query.as_slice(), [one, two] if one.name == "limit" && two.name == "cursor");
        if is_page { "Paging".to_owned() } else { format!("{}Query", pascal(&self.id)) }
    }

    fn headers_type(&self) -> String {
        format!("{}Headers", pascal(&self.id))
    }
}

impl Parameter {
    fn read(parameter: &Value) -> Result<Self> {
        let text = |name: &str| parameter.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let schema = parameter.get("schema").context("a parameter without a schema")?;
        let rust = match reference(schema) {
            // Named schemas in a URL or header are strings.
            Some(_) => "String".to_owned(),
            None => rust_type(schema)?.trim_start_matches("Option<").trim_end_matches('>').to_owned(),
        };
        let required = parameter.get("required") == Some(&Value::Bool(true));
        Ok(Self { name: text("name"), description: text("description"), rust, required })
    }
}

/// Returns the schema of the successful responses, `Some(None)` if they are empty, or `None` for an operation that
/// redirects or returns other content than JSON.
fn response_type(operation: &Value) -> Result<Option<Option<String>>> {
    let responses = operation.get("responses").and_then(Value::as_object).context("no responses")?;
    let mut schemas = Vec::new();
    // The client has no cache, so it never receives 304.
    let successes = || responses.iter().filter(|(status, _)| status.starts_with(['2', '3']) && *status != "304");
    for (_, response) in successes() {
        schemas.push(match response.get("content").and_then(Value::as_object) {
            None => None,
            Some(content) => match content.get("application/json").and_then(|it| reference(it.get("schema")?)) {
                Some(schema) => Some(schema),
                None => return Ok(None),
            },
        });
    }
    schemas.sort();
    schemas.dedup();
    let redirects = successes().any(|(status, _)| status.starts_with('3'));
    let schema = match schemas.as_slice() {
        [schema] => schema.clone(),
        // The response is either empty or the resource.
        [None, Some(schema)] => Some(format!("Option<{schema}>")),
        _ => bail!("successful responses with different schemas, or none"),
    };
    Ok((!redirects).then_some(schema))
}

fn request_body(operation: &Value) -> Result<(Body, Option<String>)> {
    let Some(content) = operation.pointer("/requestBody/content").and_then(Value::as_object) else {
        return Ok((Body::None, None));
    };
    let mut kinds = content.iter();
    let (Some((content_type, media)), None) = (kinds.next(), kinds.next()) else {
        bail!("more than one content type in the request body")
    };
    if content_type == "application/json" {
        let schema = media.get("schema").and_then(reference).context("a request body without a named schema")?;
        return Ok((Body::Json, Some(schema)));
    }
    Ok((Body::Upload(content_type.clone()), None))
}
