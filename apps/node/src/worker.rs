//! Worker code: a `workerd` process for each project that has code.
//!
//! `workerd` is not a sandbox, and an endless loop blocks its whole process. Therefore each running version of a
//! project has its own process with its own user id, namespaces, kernel limits and a watchdog.
//!
//! `launch` runs in the new process: it applies the protections (`sandbox`) and then executes `workerd`. `detect` finds
//! out which protections the machine offers. `budget` limits the memory of all processes together. The process reads
//! its configuration (`definition`) from its standard input. Through the sockets in its folder, it reaches the egress
//! proxy, which is its only way to the network, and `bindings`, which implement the objects in `env`.
//!
//! The reconciler starts and stops versions through `fleet`, and `proxy` forwards requests. Both use [`Worker`], one
//! version of one project, which manages its `Process`.

pub mod bindings;
mod budget;
mod capnp;
mod cgroup;
pub mod config;
mod definition;
mod detect;
mod egress;
mod email;
pub mod fleet;
mod folder;
pub mod headers;
pub mod launch;
mod output;
mod process;
pub mod protection;
pub mod proxy;
mod resources;
#[cfg(target_os = "linux")]
mod sandbox;
mod spawner;
mod uid_processes;
mod uids;
mod upgrade;
mod version;
mod watchdog;
mod workers;

pub use cgroup::available_memory;
pub use fleet::Unavailable;
pub use process::RequestGuard;
pub use version::{Rejection, VersionCode, Worker};
pub use workers::Workers;

/// The size of the buffers of HTTP connections of and to workers, which limits the heads of requests and responses.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
