//! The types of the API (contract section 10).

mod browse;
mod repo;

pub use browse::*;
pub use repo::*;
