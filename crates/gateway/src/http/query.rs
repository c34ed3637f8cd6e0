//! Query parameters.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use kernel::{Code, InvalidField, InvalidFields, Paging};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::validation::decode;
use super::{Describe, Extract, Operation, Schemas};
use crate::problem::Problem;

/// `limit` and `cursor` of a listing that is ordered by `K`. `DEFAULT` is the limit of a request without one.
#[derive(Debug)]
pub struct Pagination<K, const DEFAULT: u16 = { Paging::<()>::DEFAULT_LIMIT }>(pub Paging<K>);

/// `limit` and `before` of a listing of rows with rising numbers, the newest first.
#[derive(Debug)]
pub struct PageBefore {
    pub limit: u16,
    /// The page contains only rows with smaller numbers than this. `None` for the first page.
    pub before: Option<i64>,
}

impl<K, const DEFAULT: u16> Describe for Pagination<K, DEFAULT> {
    fn describe(operation: &mut Operation) {
        describe_limit(operation, DEFAULT);
        let cursor = json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]+$" });
        operation.parameter("query", "cursor", "The `nextCursor` of the previous page.", &cursor);
        operation.code(&Code::BAD_REQUEST);
    }
}

impl<K: DeserializeOwned, const DEFAULT: u16> Extract for Pagination<K, DEFAULT> {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let mut errors = Vec::new();
        let limit = limit(request, DEFAULT, &mut errors);
        let paging = match single(request, "cursor", &mut errors) {
            None => Paging { limit, after: None },
            Some(cursor) => Paging::after(limit, &cursor).unwrap_or_else(|error| {
                errors.push(InvalidField::new("cursor", error));
                Paging { limit, after: None }
            }),
        };
        InvalidFields::ensure_none(errors).map(|()| Self(paging)).map_err(Problem::invalid_fields)
    }
}

impl Describe for PageBefore {
    fn describe(operation: &mut Operation) {
        describe_limit(operation, Paging::<()>::DEFAULT_LIMIT);
        let before = json!({ "type": "integer", "minimum": 1 });
        operation.parameter("query", "before", "The `nextBefore` of the previous page.", &before);
        operation.code(&Code::BAD_REQUEST);
    }
}

impl Extract for PageBefore {
    async fn extract(request: &HttpRequest, _: &mut Payload) -> Result<Self, Problem> {
        let mut errors = Vec::new();
        let limit = limit(request, Paging::<()>::DEFAULT_LIMIT, &mut errors);
        let before = single(request, "before", &mut errors).and_then(|text| {
            let number = positive(&text).then(|| text.parse().unwrap_or(i64::MAX));
            if number.is_none() {
                errors.push(InvalidField::new("before", "must be an integer of at least 1"));
            }
            number
        });
        InvalidFields::ensure_none(errors).map(|()| Self { limit, before }).map_err(Problem::invalid_fields)
    }
}

fn describe_limit(operation: &mut Operation, default: u16) {
    let limit = json!({ "type": "integer", "minimum": 1, "default": default });
    let description = "The largest number of items to return. Values above 200 count as 200.";
    operation.parameter("query", "limit", description, &limit);
}

fn limit(request: &HttpRequest, default: u16, errors: &mut Vec<InvalidField>) -> u16 {
    match single(request, "limit", errors) {
        None => default,
        // A number that is too large to parse means the maximum.
        Some(text) if positive(&text) => {
            text.parse().map_or(Paging::<()>::MAX_LIMIT, |limit: u16| limit.min(Paging::<()>::MAX_LIMIT))
        }
        Some(_) => {
            errors.push(InvalidField::new("limit", "must be an integer of at least 1"));
            default
        }
    }
}

/// Returns whether a text is a positive decimal number of any length.
fn positive(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit()) && text.bytes().any(|b| b != b'0')
}

/// Query parameters, as a struct of strings.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: ToSchema> Describe for Query<T> {
    fn describe(operation: &mut Operation) {
        operation.schema::<T>();
        let schema = operation.schemas.get(T::name().as_ref()).cloned().unwrap_or_default();
        let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        for (name, schema) in properties(&schema) {
            let schema = present(schema);
            let description = schema.get("description").and_then(Value::as_str).unwrap_or_default();
            operation.parameter("query", name, description, &schema);
            if let Some(parameter) = operation.parameters.last_mut() {
                parameter["required"] = required.contains(&json!(name)).into();
            }
        }
        operation.code(&Code::BAD_REQUEST);
    }
}

impl<T: DeserializeOwned + ToSchema> Extract for Query<T> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        let schemas = web::Data::<Schemas>::extract(request, payload).await?;
        let mut errors = Vec::new();
        let given = properties(schemas.get(&T::name()))
            .filter_map(|(name, _)| Some((name.clone(), single(request, name, &mut errors)?.into())));
        let given = Value::Object(given.collect::<Map<_, _>>());
        decode(&schemas, given, errors).map(Self)
    }
}

/// Removes null from the schema of a parameter, because a query omits the parameter instead.
fn present(schema: &Value) -> Value {
    let is_null = |it: &&Value| it.get("type").is_some_and(|it| it == "null");
    let choices = schema.get("oneOf").and_then(Value::as_array);
    if let Some(choice) = choices.and_then(|choices| choices.iter().find(|it| !is_null(it))) {
        return choice.clone();
    }
    let mut schema = schema.clone();
    if let Some(object) = schema.as_object_mut() {
        let only = object.get("type").and_then(Value::as_array).and_then(|types| types.iter().find(|it| *it != "null"));
        if let Some(only) = only.cloned() {
            object.insert("type".to_owned(), only);
        }
        object.retain(|key, value| key != "default" || !value.is_null());
    }
    schema
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// Returns the value of a parameter. Adds an error if the parameter is repeated.
fn single(request: &HttpRequest, name: &str, errors: &mut Vec<InvalidField>) -> Option<String> {
    let pairs: Vec<(String, String)> = serde_urlencoded::from_str(request.query_string()).unwrap_or_default();
    let mut values = pairs.into_iter().filter(|(key, _)| key == name).map(|(_, value)| value);
    let value = values.next();
    if values.next().is_some() {
        errors.push(InvalidField::new(name, "must not be repeated"));
    }
    value
}
