//! The types of the API.

mod secret;
mod storage;

pub use secret::*;
pub use storage::*;
