//! TLS certificates of hostnames.
//!
//! Owns the Postgres schema `certificates`: the names that need a certificate, the orders in progress, and the current
//! certificates. Another context states which hostnames of a project are served ([`Certificates::sync`]). A background
//! job issues and renews the certificates ([`Certificates::run_due`]) at the authorities of the port [`Authority`].
//!
//! Every step of an order is committed before the next call to the authority, and the authority's status of the order
//! decides about the next step. So the next run continues an order after the process was killed at any point. The
//! record of a challenge is written and deleted in the commits that insert and delete its order, so no record outlives
//! it.

mod caa;
mod error;
mod key;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use caa::CaaRecord;
pub use error::CertificateError;
pub use model::*;
pub use ports::*;
pub use repository::*;
pub use service::{Certificates, CertificatesConfig, SEALED_COLUMNS};
