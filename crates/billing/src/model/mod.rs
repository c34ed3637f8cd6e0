//! The types of the API (specification, "Billing (organization)" and "AI"; contract section 8).

mod ai;
mod credit;
mod status;
mod topup;

pub use ai::*;
pub use credit::*;
pub use status::*;
pub use topup::*;
