//! Zones on Postgres.

mod rdata;
mod rrset;
mod served;
mod zone;
