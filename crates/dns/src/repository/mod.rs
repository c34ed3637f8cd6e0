//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod column;
mod content;
mod deleted_zone;
mod rdata;
mod reservation;
mod rrset;
mod served;
mod signer_check;
mod zone;

pub use content::*;
pub use deleted_zone::*;
pub(crate) use rdata::{packed_len, rrset_bytes};
pub use reservation::*;
pub use rrset::*;
pub use served::*;
pub use signer_check::*;
pub use zone::*;
