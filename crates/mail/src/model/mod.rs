//! The types of mail.

mod delivery;
mod event;
mod log;
mod outgoing;
mod suppression;

pub use delivery::*;
pub use event::*;
pub use log::*;
pub use outgoing::*;
pub use suppression::*;
