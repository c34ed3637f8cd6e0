//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod delivery;
mod mailbox;
mod message;
mod notification;
mod project;
mod suppression;

pub use delivery::*;
pub use mailbox::*;
pub use message::*;
pub use notification::*;
pub use project::*;
pub use suppression::*;
