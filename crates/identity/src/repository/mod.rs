//! What users and their credentials ask of storage: each file holds a trait on [`store::Connection`] and its SQL.

mod key;
mod token;
mod user;

pub use key::*;
pub use token::*;
pub use user::*;
