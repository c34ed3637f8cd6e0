//! DNS zones of organizations, served to nameservers by zone transfer.
//!
//! This crate owns the Postgres schema `dns`. [`Rdata`] converts records from text to wire format and back; the stored
//! bytes are the transferred bytes. [`zonefile`] needs no database.

mod error;
mod hosting;
mod model;
mod name;
pub mod notify;
mod ports;
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

pub use error::{DnsError, ItemError};
pub use hosting::{Hosting, InvalidHosting};
pub use model::*;
pub use name::{InvalidName, NameError, OwnerName, WireName, ZoneName};
pub use ports::{
    Hostnames, LookupFailure, Notice, NsRecords, Organizations, Ports, Registrations, Resolver, TxtRecords,
};
pub use record::{InvalidRecord, Rdata, RecordType, Soa};
pub use record_set::{InvalidSet, RecordSet};
pub use repository::*;
pub use service::{
    AtSerial, ChallengeResult, CreatedZone, DS_TOPIC, Dns, DsMessage, ImportResult, InitialContent, LinkResult,
    Observation, Precondition, RrsetChanges, WantedDs, ZoneReader,
};
