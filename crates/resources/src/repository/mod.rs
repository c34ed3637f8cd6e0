//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod grant;
mod secret;
mod storage;

pub use grant::*;
pub use secret::*;
pub use storage::*;
