//! The OpenAPI schema of a digest.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::Digest;

impl PartialSchema for Digest {
    fn schema() -> RefOr<Schema> {
        let schema = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^sha256:[0-9a-f]{64}$"));
        schema
            .description(Some("sha256: and 64 lowercase hex digits"))
            .examples(["sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"])
            .into()
    }
}

impl ToSchema for Digest {
    fn name() -> Cow<'static, str> {
        "Digest".into()
    }
}
