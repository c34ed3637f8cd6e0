//! Routes, extractors and responses, and the middleware around them.

mod body;
mod cached;
mod closed_bodies;
mod collisions;
mod concurrency_limit;
mod endpoint;
mod etag;
mod extract;
mod flattened;
mod guard;
mod header;
mod idempotency;
mod load_shedder;
mod node_wait;
mod operation;
mod org_write_limiter;
mod parameter;
mod path;
mod query;
mod rejection;
mod response;
mod route_trie;
mod routes;
mod schemas;
mod static_responses;
mod streamed;
mod telemetry;
mod upload_kind;
mod upload_limiter;
mod validation;

pub use body::{Body, BodyMemory, Form, MessageUpload, PlainText, Raw, Upload, UploadError, ZonefileText};
pub(crate) use body::{parse_json, read_in_time, upload_problem};
pub use cached::Cached;
pub use collisions::Collisions;
pub(crate) use concurrency_limit::ConcurrencyLimit;
pub use endpoint::Endpoint;
pub(crate) use endpoint::LONG_REQUEST_TIMEOUT;
pub use etag::WithEtag;
pub(crate) use etag::if_match;
pub use extract::{Describe, Extract, IntoResponse, Policy};
pub use guard::guard;
pub(crate) use guard::{percent_decoded, release_permit};
pub use header::RequestHeaders;
pub(crate) use load_shedder::{LoadShedder, shed_load};
pub use node_wait::{NodeWait, NodeWaitLimiter, Shutdown};
pub(crate) use operation::ErrorDetail;
pub use operation::{Operation, PolicyTarget};
pub use org_write_limiter::without_write_permit;
pub(crate) use org_write_limiter::{OrgWriteLimiter, release_write_permit};
pub use parameter::PathParameter;
pub(crate) use parameter::SEGMENT;
pub use path::{Path, PathParameters};
pub(crate) use path::{path_parameters, text_path_parameters};
pub use query::{PageBefore, Pagination, Query};
pub(crate) use rejection::reject_malformed;
pub use response::{
    Accepted, Bytes, Created, CreatedOrExisting, Either, EmptyOk, Json, JsonOrNoContent, NoContent, SignInRedirect,
    TemporaryRedirect,
};
pub(crate) use route_trie::RouteMatch;
pub use routes::{Area, Router, Routes};
pub use schemas::Schemas;
pub(crate) use static_responses::StaticResponses;
pub use streamed::{BodyWriter, Streamed};
pub use telemetry::request_telemetry;
pub use upload_limiter::UploadLimiter;
