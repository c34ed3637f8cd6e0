//! The types of the API.

mod auth;
mod secret;
mod storage;

pub use auth::*;
pub use secret::*;
pub use storage::*;
