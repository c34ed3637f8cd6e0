//! Projects, their deployments, hostnames and access policies.
//!
//! Owns the Postgres schema `projects` and the bundle store. Depends on other contexts through ports: the lock and the
//! plan of an organization ([`Organizations`]), the desired state of a project's node ([`Placements`]), and the
//! ownership verification of hostnames ([`Resolver`], [`Zones`]).

mod bundles;
mod error;
mod hostname;
mod model;
mod ports;
mod repository;
mod schema;
mod service;
mod site_url;

pub use bundle;
pub use bundles::{Bundles, StoredBundle};
pub use error::{HostnameLimit, ProjectError};
pub use hostname::{HostName, InvalidHostName};
pub use kernel::{BundleLimits, Limits, Plan, PlanLimits};
pub use model::*;
pub use ports::{
    HostedZone, LiveAccess, LiveState, LookupFailure, Notice, Organizations, Placements, PublishedRecords, Push,
    Pushes, Resolver, Zones,
};
pub use repository::*;
pub use service::{Org, Ports, Projects, Site, Source};
pub use site_url::{InvalidSiteUrl, SiteUrl};
