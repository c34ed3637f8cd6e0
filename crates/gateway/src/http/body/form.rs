//! A form body (`application/x-www-form-urlencoded`), as OAuth 2.0 uses it (RFC 6749, appendix B).

use std::collections::HashSet;

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use kernel::{Code, InvalidField};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;
use validator::Validate;

use super::read::{DEFAULT_LIMIT, expect_content_type, read_in_time};
use crate::http::validation::validate;
use crate::http::{Describe, Extract, Operation, Schemas, percent_decoded};
use crate::problem::Problem;
use crate::protocol;

const CONTENT_TYPE: &str = "application/x-www-form-urlencoded";

/// A form of at most `LIMIT` bytes, as a struct of strings. RFC 6749 section 3.2: a parameter without a value counts as
/// absent, an unknown one is ignored, and a repeated one is an error.
#[derive(Debug)]
pub struct Form<T, const LIMIT: usize = DEFAULT_LIMIT>(pub T);

impl<T: ToSchema, const LIMIT: usize> Describe for Form<T, LIMIT> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.body(LIMIT, json!({ "required": true, "content": { CONTENT_TYPE: { "schema": schema } } }));
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl<T: DeserializeOwned + Validate + ToSchema, const LIMIT: usize> Extract for Form<T, LIMIT> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, CONTENT_TYPE)?;
        let bytes = read_in_time(request, payload, LIMIT).await?;
        let schemas = web::Data::<Schemas>::extract(request, payload).await?;
        let known = schemas.get(&T::name()).get("properties").and_then(Value::as_object);
        let parameters = parse(&bytes, |name| known.is_some_and(|known| known.contains_key(name)))?;
        validate(&schemas, Value::Object(parameters)).map(Self)
    }
}

/// Returns the known parameters that have a value.
fn parse(bytes: &[u8], is_known: impl Fn(&str) -> bool) -> Result<Map<String, Value>, Problem> {
    let malformed = || Problem::bad_request("the form is not UTF-8 text in valid percent encoding");
    let text = std::str::from_utf8(bytes).map_err(|_| malformed())?;
    let mut seen = HashSet::new();
    let mut parameters = Map::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (name, value) = (decoded(name).ok_or_else(malformed)?, decoded(value).ok_or_else(malformed)?);
        if !seen.insert(name.clone()) {
            return Err(Problem::invalid_fields(InvalidField::new(name, "must not be repeated")));
        }
        if value.contains('\0') {
            return Err(Problem::invalid_fields(InvalidField::new(name, "must not contain U+0000")));
        }
        if !value.is_empty() && is_known(&name) {
            parameters.insert(name, Value::String(value));
        }
    }
    Ok(parameters)
}

/// Decodes `+` to a space, and percent encoding.
fn decoded(text: &str) -> Option<String> {
    percent_decoded(&text.replace('+', " "))
}
