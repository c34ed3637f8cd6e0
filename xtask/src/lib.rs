//! What the commands of xtask share with `apps/lab`: Postgres and other programs on this machine, and how none of them is
//! left running.

pub mod credential;
pub mod debian;
pub mod npm;
pub mod obtain;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod pypi;
pub mod services;
pub mod workspace;
