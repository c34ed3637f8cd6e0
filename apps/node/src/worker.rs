//! Worker code: a `workerd` for each project that has some.
//!
//! `workerd` is no sandbox by itself, and one endless loop stops a whole process. So each version of a project that
//! runs has a process of its own, under a user id that nothing else has, with limits of the kernel and a watchdog.
//!
//! The process is given its folder and its program as open files (`launch`), and takes its sockets' paths through the
//! former: no user id but the node's own needs a way to the node's directory, however deep that lies.
//!
//! Outward: `fleet` is what the converger asks for versions to be started and stopped, `proxy` how a request gets its
//! answer. Between the two stands [`Worker`], one version of one project, and below it `Process`, one run.

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
