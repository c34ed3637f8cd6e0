//! Reads and writes of the schema `billing`.

mod account;
mod call;
mod call_sql;
mod subscription;
mod topup;
mod webhook;

pub use account::*;
pub use call::*;
pub use subscription::*;
pub use topup::*;
pub use webhook::*;
