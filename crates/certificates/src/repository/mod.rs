//! The storage of this context: one file for each table.

mod account;
mod certificate;
mod name;
mod order;

pub use account::*;
pub use certificate::*;
pub use name::*;
pub use order::*;
