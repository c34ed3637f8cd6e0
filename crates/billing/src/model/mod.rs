//! The types of the API (specification, "Billing (organization)"; contract section 8).

mod status;

pub use status::*;
