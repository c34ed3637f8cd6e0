//! Request bodies.

mod form;
mod json;
mod memory;
mod message;
mod plain_text;
mod raw;
mod read;
mod strict_json;
mod text;
mod upload;

pub use form::Form;
pub use json::Body;
pub use memory::BodyMemory;
pub(crate) use memory::declared_length;
pub(in crate::http) use memory::reserve_memory;
pub use message::MessageUpload;
pub use plain_text::PlainText;
pub use raw::Raw;
pub(crate) use read::{DEFAULT_LIMIT, read_in_time};
pub(crate) use strict_json::parse as parse_json;
pub use text::ZonefileBody;
pub(crate) use upload::{MIN_RATE, upload_problem};
pub use upload::{Upload, UploadError};
