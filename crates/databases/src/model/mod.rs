//! The types of the API (specification, "Database (per project)"; contract section 9).

mod connect;
mod generation;
mod operation;
mod token;

pub use connect::*;
pub use generation::*;
pub use operation::*;
pub use token::*;
