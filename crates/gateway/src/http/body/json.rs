//! A JSON body.

use actix_web::dev::Payload;
use actix_web::{HttpRequest, web};
use kernel::{Code, InvalidField};
use serde::de::DeserializeOwned;
use serde_json::json;
use utoipa::ToSchema;
use validator::Validate;

use super::read::{DEFAULT_LIMIT, expect_content_type, read_in_time};
use super::strict_json;
use crate::http::validation::validate;
use crate::http::{Describe, Extract, Operation, Schemas};
use crate::problem::Problem;
use crate::protocol;

/// A JSON body of at most `LIMIT` bytes. It is validated against the published schema and the rules of its type; the
/// response lists all errors.
#[derive(Debug)]
pub struct Body<T, const LIMIT: usize = DEFAULT_LIMIT>(pub T);

impl<T: ToSchema, const LIMIT: usize> Describe for Body<T, LIMIT> {
    fn describe(operation: &mut Operation) {
        let schema = operation.schema::<T>();
        operation.body(LIMIT, json!({ "required": true, "content": { "application/json": { "schema": schema } } }));
        operation.codes(&[&Code::BAD_REQUEST, &Code::PAYLOAD_TOO_LARGE, &protocol::UNSUPPORTED_MEDIA_TYPE]);
    }
}

impl<T: DeserializeOwned + Validate + ToSchema, const LIMIT: usize> Extract for Body<T, LIMIT> {
    async fn extract(request: &HttpRequest, payload: &mut Payload) -> Result<Self, Problem> {
        expect_content_type(request, "application/json")?;
        let bytes = read_in_time(request, payload, LIMIT).await?;
        let value = strict_json::parse(&bytes)
            .map_err(|error| Problem::invalid_fields(InvalidField::new("", format!("is not valid JSON: {error}"))))?;
        drop(bytes);
        let schemas = web::Data::<Schemas>::extract(request, payload).await?;
        validate(&schemas, value).map(Self)
    }
}
