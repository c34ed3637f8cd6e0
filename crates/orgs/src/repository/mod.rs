//! The storage of organizations. Each file has a trait on [`store::Connection`] and its SQL.

mod invite;
mod invite_mail;
mod notification;
mod org;

pub use invite::*;
pub use invite_mail::*;
pub use notification::*;
pub use org::*;
