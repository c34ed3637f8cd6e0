//! The storage of connected apps. Each file has a trait on [`store::Connection`] and its SQL.

mod client;
mod code;
mod device;
mod grant;
mod key;
mod refresh_token;

pub use client::*;
pub use code::*;
pub use device::*;
pub use grant::*;
pub use key::*;
pub use refresh_token::*;
