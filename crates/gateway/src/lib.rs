//! The HTTP API: the only crate that handles API requests and statuses.
//!
//! A route is an async function. Its first argument is its policy ([`authority`]), its other arguments are extracted
//! from the request, and its result is the response. [`http::Routes`] derives everything from these types, for serving
//! and for the OpenAPI document. A function whose first argument is not a policy does not compile as a route.

mod app;
pub mod authority;
mod config;
mod docs;
mod example;
mod formats;
pub mod http;
mod internal;
mod json_schema;
mod limits;
mod openapi;
mod pdns;
mod problem;
mod protocol;
mod readiness;
mod request_id;
mod require;
mod routing;
pub mod v1;

pub use app::{Services, internal_app, public_service, rejections};
pub use authority::find_caller_check;
pub use config::{Config, MaxWaits, RateLimits, SignInMethods, Site};
pub use docs::{errors_markdown, routes_markdown};
pub use example::compose as compose_example;
pub use internal::routes as internal_routes;
pub use json_schema::validate;
pub use limits::Limiters;
pub use openapi::{document, node_schema};
pub use pdns::routes as pdns_routes;
pub use problem::{ErrorFormat, Problem};
pub use request_id::RequestId;
pub use v1::Contexts;
