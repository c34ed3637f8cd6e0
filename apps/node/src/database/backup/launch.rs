//! `svc-node --exec-postgres`: executes a client program of Postgres that ends with the node, limits its memory, and
//! makes it the first process that the kernel kills if memory is used up.
//!
//! Safe code cannot run between fork and exec. Therefore the node starts itself with `--exec-postgres`, as it starts
//! itself with another argument for workers.

use std::ffi::OsString;

use anyhow::bail;

/// The internal argument that selects this mode.
pub const ARGUMENT: &str = "--exec-postgres";
/// The largest value. Every process may set it for itself.
#[cfg(target_os = "linux")]
const OOM_SCORE_ADJ: &str = "1000";

/// Replaces this process with a client program, so it returns only after an error. The arguments are the process id of
/// the node, the limit of the address space in bytes, the program, and its arguments. Must be called while the process
/// has one thread.
///
/// # Errors
/// Returns an error if the program cannot be executed or the node has exited.
#[cfg(target_os = "linux")]
pub fn exec(arguments: &[OsString]) -> anyhow::Result<()> {
    use std::fs;
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::Command;

    use anyhow::{Context as _, ensure};
    use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit};

    let [node, memory, program, arguments @ ..] = arguments else { bail!("{ARGUMENT} is for internal use") };
    let node = node.to_str().and_then(|node| node.parse().ok()).context("not a process id")?;
    let memory = memory.to_str().and_then(|bytes| bytes.parse().ok()).context("not a number of bytes")?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    ensure!(getppid() == Pid::from_raw(node), "the node exited before its program started");
    fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ)?;
    setrlimit(Resource::As, Rlimit { current: Some(memory), maximum: Some(memory) })?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("{}", Path::new(program).display()))
}

/// Not supported on this system.
///
/// # Errors
/// Always returns an error.
#[cfg(not(target_os = "linux"))]
pub fn exec(_: &[OsString]) -> anyhow::Result<()> {
    bail!("databases run only on Linux")
}
