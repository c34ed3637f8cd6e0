//! DNS zones: what organizations publish, as nameservers transfer it.
//!
//! Owns the Postgres schema `dns`. Records take one path, text to wire to text ([`Rdata`]): what is saved is what is
//! transferred. Zone files are read and written without a database ([`zonefile`]).

mod error;
mod hosting;
mod model;
mod name;
pub mod notify;
pub mod primary;
mod record;
mod record_set;
mod repository;
mod schema;
pub mod serial;
mod service;
pub mod signer;
pub mod wire;
pub mod zonefile;

pub use error::{DnsError, ItemFault};
pub use hosting::{Hosting, InvalidHosting};
pub use model::*;
pub use name::{InvalidName, NameFault, OwnerName, WireName, ZoneName};
pub use record::{InvalidRecord, Rdata, RecordType, Soa};
pub use record_set::{InvalidSet, RecordSet};
pub use repository::*;
pub use service::{At, Dns, Expected, Imported, Link, Observation};
