//! What zones ask of storage: each file holds a trait on [`store::Connection`] and its SQL.

mod column;
mod look;
mod rdata;
mod rrset;
mod served;
mod zone;

pub use look::*;
pub use rrset::*;
pub use served::*;
pub use zone::*;
