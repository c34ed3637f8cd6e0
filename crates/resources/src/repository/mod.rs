//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod email;
mod grant;
mod secret;
mod storage;

pub use email::*;
pub use grant::*;
pub use secret::*;
pub use storage::*;
