//! The HTTP face: the only crate that knows requests and statuses.
//!
//! A route is an async function. Its first argument states who may call it ([`authority`]), the others what they
//! bring, its result what they get; [`http::Routes`] reads all of that off the types, for serving and for the OpenAPI
//! document alike. A function whose first argument is no policy does not compile as a route.

mod app;
pub mod authority;
mod config;
mod docs;
mod example;
pub mod http;
mod internal;
mod limits;
mod openapi;
mod pdns;
mod problem;
mod protocol;
mod request_id;
mod require;
mod shape;
pub mod v1;

pub use app::{Services, internal_app, public_app};
pub use config::{Config, RateLimits, SignIns, Site};
pub use docs::{errors_markdown, routes_markdown};
pub use example::compose as compose_example;
pub use internal::routes as internal_routes;
pub use limits::Limiters;
pub use openapi::{document, node_schema};
pub use pdns::routes as pdns_routes;
pub use problem::{ErrorFormat, Problem};
pub use request_id::RequestId;
pub use shape::{Fault, check};
pub use v1::Contexts;
