//! Domains of organizations: purchase, import, renewal and transfer away.
//!
//! Owns the Postgres schema `domains`. The registrar is the source of truth for expiry, lock and nameservers; this
//! context stores the values that it read last. A purchase is a saga ([`store::saga`]), so it survives failures of
//! processes and providers: it either charges and registers exactly once, or ends with a refund and no domain.

mod error;
mod model;
mod ports;
mod repository;
mod schema;
mod service;

pub use error::DomainError;
pub use model::*;
pub use ports::{
    Charge, DsRecord, DsWanted, NewOrder, Notice, Offer, Organizations, Payments, PaymentsError, Ports, Prices, Refund,
    RegisteredDomain, Registrar, RegistrarError, Registration, RenewalOrder, ZoneRefusal, Zones,
};
pub use repository::*;
pub use service::{Created, Domains, DomainsConfig, DsError, RenewalCharges, SEALED_COLUMNS};
