//! Repositories. Each file holds a trait on [`store::Connection`] and its SQL.

mod auth;
mod email;
mod grant;
mod secret;
mod storage;

pub use auth::*;
pub use email::*;
pub use grant::*;
pub use secret::*;
pub use storage::*;
