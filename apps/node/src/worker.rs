//! Worker code: a `workerd` process for each project that has code.
//!
//! `workerd` is not a sandbox, and an endless loop blocks its whole process. Therefore each running version of a
//! project has its own process with its own user id, kernel limits and a watchdog.
//!
//! The process inherits its folder and program as open files (`launch`), and reaches its sockets through the folder.
//! Its user id therefore needs no access to the node's directory.
//!
//! The reconciler starts and stops versions through `fleet`, and `proxy` forwards requests. Both use [`Worker`], one
//! version of one project, which manages its `Process`.

mod assets;
pub mod config;
mod definition;
pub mod fleet;
mod folder;
mod headers;
pub mod launch;
mod output;
mod process;
pub mod proxy;
mod spawner;
mod uids;
mod upgrade;
mod version;
mod watchdog;
mod workers;

pub use version::Worker;
pub use workers::Workers;
