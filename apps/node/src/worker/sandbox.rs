//! The protections that a process applies to itself before it executes `workerd`. Linux only.

pub mod landlock;
pub mod mounts;
pub mod seccomp;

use std::path::PathBuf;

/// The paths by which `workerd` is reachable within the sandbox.
pub struct Paths {
    /// The folder of the process.
    pub folder: PathBuf,
    /// The program.
    pub workerd: PathBuf,
}
