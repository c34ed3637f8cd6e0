//! What organizations ask of storage: each file holds a trait on [`store::Connection`] and its SQL.

mod invite;
mod notification;
mod org;

pub use invite::*;
pub use notification::*;
pub use org::*;
