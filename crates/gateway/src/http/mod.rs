//! What a route is made of: what it takes, what it answers, and how it is found.

mod body;
mod endpoint;
mod etag;
mod fixed;
mod guard;
mod hosted;
mod json;
mod lane;
mod linked;
mod observe;
mod once;
mod operation;
mod parameter;
mod path;
mod query;
mod reply;
mod routes;
mod table;
mod text;

pub use body::{Body, Upload};
pub(crate) use body::{UploadPlaces, read_in_time};
pub use endpoint::{Describe, Endpoint, Extract, Policy, Reply};
pub use etag::{IfMatch, Tagged};
pub(crate) use fixed::Fixed;
pub use guard::guard;
pub(crate) use guard::{Room, percent_decoded};
pub use hosted::Hosted;
pub(crate) use json::parse as parse_json;
pub(crate) use lane::Lanes;
pub use linked::Linked;
pub use observe::{RequestId, observe};
pub use operation::{Operation, Place};
pub use path::{Header, Path, Paths};
pub use query::{Pages, Query};
pub use reply::{Bytes, Created, Either, Json, Made, Moved, NoContent, Redirect};
pub use routes::{Area, Router, Routes};

pub(crate) use table::Matched;
pub use text::ZonefileText;
