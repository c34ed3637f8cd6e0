//! The types of the API.

mod authorization;
mod client;
mod device;
mod grant;
mod token;

pub use authorization::*;
pub use client::*;
pub use device::*;
pub use grant::*;
pub use token::*;

/// Returns the default: the user approves.
fn approved() -> bool {
    true
}
