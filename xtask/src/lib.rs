//! The library that xtask shares with `apps/lab`: starts Postgres and other programs on this machine, and ensures that
//! none of them is left running.

pub mod credential;
pub mod debian;
pub mod npm;
pub mod obtain;
mod openssl;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod pypi;
pub mod services;
pub mod workerd;
pub mod workspace;
