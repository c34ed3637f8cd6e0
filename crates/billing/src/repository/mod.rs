//! Reads and writes of the schema `billing`.

mod account;
mod subscription;
mod webhook;

pub use account::*;
pub use subscription::*;
pub use webhook::*;
