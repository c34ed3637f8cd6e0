//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod column;
mod rdata;
mod rrset;
mod served;
mod signer_check;
mod zone;

pub use rrset::*;
pub use served::*;
pub use signer_check::*;
pub use zone::*;
