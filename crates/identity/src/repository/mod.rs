//! The storage of users and their credentials. Each file has a trait on [`store::Connection`] and its SQL.

mod key;
mod token;
mod user;

pub use key::*;
pub use token::*;
pub use user::*;
