//! The processes of worker user ids.
//!
//! The node knows the process that it started, but that process can leave others behind, for example a daemon. They
//! keep the user id, because a worker has no capability to change it. A previous run of the node can leave processes
//! behind too.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A killed process disappears within milliseconds, unless the kernel waits for a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);
const KILL_INTERVAL: Duration = Duration::from_millis(2);

/// Returns the user ids that living processes have, among those that `is_candidate` selects. Blocks.
pub fn uids_in_use(is_candidate: impl Fn(u32) -> bool) -> io::Result<HashSet<u32>> {
    processes(is_candidate).map(|found| found.map(|(_, uid)| uid).collect())
}

/// Kills all processes with this user id, and waits until they are gone. Returns their number. Blocks.
pub fn kill_processes(uid: u32) -> io::Result<usize> {
    let (started_at, mut killed) = (Instant::now(), HashSet::new());
    loop {
        let mut is_empty = true;
        for (pid, _) in processes(|other| other == uid)? {
            is_empty = false;
            kill(pid, uid)?;
            killed.insert(pid);
        }
        if is_empty {
            return Ok(killed.len());
        }
        if started_at.elapsed() >= KILL_TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(KILL_INTERVAL);
    }
}

/// Lists the living processes whose user id `is_selected`: process id and user id.
///
/// The list is read while it is consumed. The kernel lists processes by ascending id. Therefore, if a process forks and
/// exits in the meantime, the list also contains the child, unless the ids have wrapped around.
fn processes(is_selected: impl Fn(u32) -> bool) -> io::Result<impl Iterator<Item = (u32, u32)>> {
    let entries = fs::read_dir("/proc")?.flatten();
    let pids = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry)));
    // The owner of the folder is the effective user id.
    let owned = pids.filter_map(|(pid, entry)| Some((pid, entry.metadata().ok()?.uid())));
    Ok(owned.filter(move |(pid, uid)| is_selected(*uid) && is_alive(*pid)))
}

/// Returns whether the process executes code. A zombie, which its parent may never collect, does not.
fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| executes_code(&status))
}

fn executes_code(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    // A process whose first thread has exited is listed as a zombie while its other threads run.
    !matches!(field("State:").as_bytes(), [b'Z' | b'X', ..]) || !matches!(field("Threads:"), "0" | "1")
}

/// Kills the process if it still has this user id.
#[cfg(target_os = "linux")]
fn kill(pid: u32, uid: u32) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let process = match pidfd_open(number, PidfdFlags::empty()) {
        Err(Errno::SRCH) => return Ok(()),
        opened => opened?,
    };
    // The process may have exited since it was listed, and its id may belong to another process by now.
    if !fs::metadata(format!("/proc/{pid}")).is_ok_and(|folder| folder.uid() == uid) {
        return Ok(());
    }
    match pidfd_send_signal(process, Signal::KILL) {
        Err(Errno::SRCH) => Ok(()),
        sent => Ok(sent?),
    }
}

#[cfg(not(target_os = "linux"))]
fn kill(_: u32, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_execute_code_while_they_have_threads() {
        for (state, threads, expected) in [
            ("R (running)", "1", true),
            ("S (sleeping)", "20", true),
            ("D (disk sleep)", "1", true),
            ("Z (zombie)", "1", false),
            ("Z (zombie)", "2", true),
            ("X (dead)", "0", false),
        ] {
            let status = format!("Name:\tState:\nState:\t{state}\nUid:\t1\t1\t1\t1\nThreads:\t{threads}\n");
            assert_eq!(executes_code(&status), expected, "{state} {threads}");
        }
    }
}
