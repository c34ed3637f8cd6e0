//! Removes the remains of killed processes: running children, lock files and incomplete packs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;
use daemon::if_exists;

/// Ends the processes that an earlier run of the node left behind. Their environment contains the path of this socket.
pub fn end_processes(socket: &Path) -> anyhow::Result<()> {
    let marker = format!("{}={}", crate::hook::SOCKET, socket.display());
    for _ in 0..100 {
        let mut found = false;
        // Only Linux has `/proc`.
        let Ok(processes) = fs::read_dir("/proc") else { return Ok(()) };
        for entry in processes.flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // The process may have ended.
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
                found = true;
                if let Some(process) = rustix::process::Pid::from_raw(process) {
                    // The process may have ended.
                    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                }
            }
        }
        if !found {
            return Ok(());
        }
        sleep(Duration::from_millis(50));
    }
    bail!("processes of an earlier run do not end")
}

/// Files in the directory of a repository that block later git processes. git creates `packed-refs.new` while it holds
/// `packed-refs.lock`, and `gc.pid` contains the id of a process, which another process can have after a restart.
const LEFTOVERS: [&str; 7] =
    ["HEAD.lock", "packed-refs.lock", "packed-refs.new", "config.lock", "shallow.lock", "gc.pid", "gc.pid.lock"];

/// Removes the lock files and incomplete packs of killed processes. No git process may be changing the repository.
pub fn remove(path: &Path) -> anyhow::Result<()> {
    let objects = path.join("objects");
    // git would keep a pack with a file `.keep` as it is.
    let is_incomplete = |name: &str| name.starts_with("tmp_") || name.starts_with(".tmp-") || name.ends_with(".keep");
    remove_files(objects.join("pack"), is_incomplete)?;
    for entry in fs::read_dir(&objects)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("tmp_objdir-incoming-") {
            remove_all(&entry.path())?;
        }
    }
    for name in LEFTOVERS {
        remove_file(&path.join(name))?;
    }
    // The commit-graph.
    remove_files(objects.join("info"), |name| name.starts_with("tmp_") || name.ends_with(".lock"))?;
    Ok(remove_files(path.join("refs"), |name| name.ends_with(".lock"))?)
}

/// Removes the files with certain names in a directory and its subdirectories.
fn remove_files(directory: PathBuf, is_leftover: impl Fn(&str) -> bool) -> io::Result<()> {
    let mut directories = vec![directory];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            } else if is_leftover(&entry.file_name().to_string_lossy()) {
                remove_file(&entry.path())?;
            }
        }
    }
    Ok(())
}

/// Removes a directory with its contents, if it exists.
pub fn remove_all(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_dir_all(path)).map(drop)
}

/// Removes a file, if it exists.
pub fn remove_file(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_file(path)).map(drop)
}
