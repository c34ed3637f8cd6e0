//! What a route is made of: what it takes, what it answers, and how it is found.

mod body;
mod endpoint;
mod guard;
mod json;
mod linked;
mod observe;
mod once;
mod operation;
mod path;
mod query;
mod reply;
mod routes;

pub(crate) use body::UploadPlaces;
pub use body::{Body, Upload};
pub use endpoint::{Describe, Endpoint, Extract, Policy, Reply};
pub use guard::guard;
pub(crate) use guard::{Room, percent_decoded};
pub use linked::Linked;
pub use observe::{RequestId, observe};
pub use operation::{Operation, Place};
pub use path::{Header, Path};
pub use query::{Pages, Query};
pub use reply::{Bytes, Created, Json, Made, Moved, NoContent, Redirect};
pub use routes::Routes;
