//! Control groups: the limits of memory, threads and CPU time that the kernel enforces for each worker process.
//!
//! The watchdog stops a worker above its memory limit and names the reason. The control group stops a process that
//! grows faster than the watchdog measures. On a node that does not run as root, the control group is also the only
//! limit on threads and CPU time.
//!
//! Both versions are supported. With version 2, a group with processes cannot have limited children, so the node first
//! moves itself to a child of its group. The group must be delegated to the node and contain no other process.

mod mount;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context as _;

use super::config::MAX_THREADS;
use crate::digest::Digest;
use mount::{CONTROLLERS, Version, own_groups, own_memory_limit};

/// The difference between the memory limits of the control group and of the watchdog. Without it, the watchdog would
/// never act first.
const MEMORY_MARGIN: u64 = 64 << 20;
/// The part of the limit on all workers by which the limit of their parent group is higher. The kernel's own memory for
/// a process counts in the group, but not in the node's measurements.
const TOTAL_MARGIN_DIVISOR: u64 = 4;
/// The CPU weight of all workers together, in version 2 and in version 1. The defaults of other groups are 100 and
/// 1024.
const TOTAL_WEIGHT: [(&str, &str); 2] = [("cpu.weight", "50"), ("cpu.shares", "512")];
/// The child group that the node moves itself to.
const NODE_GROUP: &str = "svc-node";
/// How often the removal of a group is tried. The removal fails until the process has left the group, which happens
/// shortly after its exit is reported.
const REMOVAL_ATTEMPTS: u32 = 100;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(5);

/// The groups of a node's workers.
pub struct Cgroups {
    parents: Arc<Parents>,
    /// The memory limit of a process in bytes.
    memory: u64,
}

/// The parent groups of all workers: one with version 2, one for each controller with version 1. Removed when dropped.
struct Parents {
    version: Version,
    folders: Vec<PathBuf>,
}

/// The group of one process. Dropping the value removes the group, and blocks until it is removed. The process must
/// have exited.
pub struct Cgroup {
    parents: Arc<Parents>,
    folders: Vec<PathBuf>,
}

/// Returns the memory in bytes that the node and its workers can use: that of the machine, or the lowest limit of a
/// control group of the node if that is lower.
pub fn available_memory() -> u64 {
    own_memory_limit().unwrap_or(u64::MAX).min(machine_memory())
}

/// Returns the memory of the machine in bytes. The unit of systemd hides `/proc/meminfo` from the node.
#[cfg(target_os = "linux")]
fn machine_memory() -> u64 {
    let machine = rustix::system::sysinfo();
    machine.totalram.saturating_mul(machine.mem_unit.into())
}

#[cfg(not(target_os = "linux"))]
const fn machine_memory() -> u64 {
    u64::MAX
}

impl Cgroups {
    /// Prepares the groups of the node with this folder. `memory` is the memory limit of a process in bytes,
    /// `total_memory` that of all processes. Blocks.
    pub fn open(run: &Path, memory: u64, total_memory: u64) -> anyhow::Result<Self> {
        // Each node of the machine has its own name, which it keeps across restarts.
        let digest = Digest::of(fs::canonicalize(run)?.as_os_str().as_encoded_bytes()).to_string();
        let name = format!("svc-workers-{}", digest.chars().rev().take(16).collect::<String>());
        let (version, own) = own_groups()?;
        let mut parents = Parents { version, folders: Vec::new() };
        for group in own {
            let group = match version {
                Version::One => group,
                Version::Two => delegate(group)?,
            };
            let parent = group.join(&name);
            create(&parent).with_context(|| format!("failed to create {}", parent.display()))?;
            remove_children(&parent)?;
            if version == Version::Two {
                enable_controllers(&parent)?;
            }
            write_if_present(&parent, TOTAL_WEIGHT)?;
            limit_total(&parent, total_memory);
            parents.folders.push(parent);
        }
        Ok(Self { parents: Arc::new(parents), memory })
    }

    /// Creates a group. Blocks.
    pub fn create(&self, name: &str) -> io::Result<Cgroup> {
        let folders = self.parents.folders.iter().map(|parent| parent.join(name)).collect();
        let cgroup = Cgroup { parents: Arc::clone(&self.parents), folders };
        let memory = self.memory.saturating_add(MEMORY_MARGIN).to_string();
        for folder in &cgroup.folders {
            create(folder)?;
            write_if_present(folder, [("memory.max", &memory), ("memory.limit_in_bytes", &memory)])?;
            write_if_present(folder, [("memory.swap.max", "0"), ("memory.oom.group", "1")])?;
            write_if_present(folder, [("pids.max", &MAX_THREADS.to_string())])?;
            // Workers share the CPU time equally.
            write_if_present(folder, [("cpu.weight", "100"), ("cpu.shares", "1024")])?;
        }
        Ok(cgroup)
    }
}

impl Cgroup {
    /// Returns the files that add a process to the group.
    pub fn process_lists(&self) -> impl Iterator<Item = PathBuf> {
        self.folders.iter().map(|folder| folder.join("cgroup.procs"))
    }

    /// Returns whether the kernel killed a process of the group because of its memory limit, and not because of the limit
    /// of all workers. Blocks.
    pub fn exceeded_memory(&self) -> bool {
        match self.parents.version {
            Version::One => {
                self.has_counted("memory.oom_control", "oom_kill ") && self.has_counted("memory.failcnt", "")
            }
            Version::Two => self.has_counted("memory.events", "oom_kill ") && self.has_counted("memory.events", "oom "),
        }
    }

    /// Returns whether a line of this file begins with the key, and then has a count that is not 0.
    fn has_counted(&self, file: &str, key: &str) -> bool {
        let texts = self.folders.iter().filter_map(|folder| fs::read_to_string(folder.join(file)).ok());
        let is_counted = |line: &str| line.strip_prefix(key).is_some_and(|count| count.trim() != "0");
        texts.into_iter().any(|text| text.lines().any(is_counted))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            // This file exists only in version 2. With version 1, the node kills the processes by their user id.
            let _ = fs::write(folder.join("cgroup.kill"), "1");
            let mut attempts = 0;
            while let Err(error) = fs::remove_dir(folder)
                && error.kind() != ErrorKind::NotFound
            {
                attempts += 1;
                if attempts == REMOVAL_ATTEMPTS {
                    tracing::warn!(%error, group = %folder.display(), "failed to remove a control group");
                    break;
                }
                sleep(REMOVAL_INTERVAL);
            }
        }
    }
}

impl Drop for Parents {
    fn drop(&mut self) {
        for folder in &self.folders {
            // Fails only if a group of a worker remains, which is logged.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Prepares a group of version 2 for limited children, and returns it.
fn delegate(own: PathBuf) -> anyhow::Result<PathBuf> {
    let group = match own.parent() {
        Some(parent) if own.ends_with(NODE_GROUP) => parent.to_owned(),
        _ => own,
    };
    // The root group has no type, and may contain processes.
    if group.join("cgroup.type").exists() {
        let node = group.join(NODE_GROUP);
        create(&node).with_context(|| format!("failed to create {}", node.display()))?;
        fs::write(node.join("cgroup.procs"), process::id().to_string()).context("failed to move the node")?;
    }
    enable_controllers(&group)?;
    Ok(group)
}

fn enable_controllers(group: &Path) -> anyhow::Result<()> {
    let controllers = CONTROLLERS.map(|controller| format!("+{controller}")).join(" ");
    fs::write(group.join("cgroup.subtree_control"), controllers).with_context(|| {
        format!("failed to limit the children of {}; the group must contain no other process", group.display())
    })
}

fn create(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Removes the groups that a killed node left.
fn remove_children(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        // This fails while a process of the group is still exiting. The group then stays until the next start.
        if entry.file_type()?.is_dir() {
            let _ = fs::remove_dir(entry.path());
        }
    }
    Ok(())
}

/// Limits the memory of all workers in the group. This bounds the harm to other programs if all workers are busy and
/// grow: the kernel then kills a worker.
fn limit_total(parent: &Path, memory: u64) {
    let margin = (memory / TOTAL_MARGIN_DIVISOR).max(MEMORY_MARGIN);
    let limit = memory.saturating_add(margin).to_string();
    // Fails with version 1 if processes that a killed node left still use more.
    let limited = write_if_present(parent, [("memory.max", &limit), ("memory.limit_in_bytes", &limit)]);
    if let Err(error) = limited {
        tracing::warn!(%error, "failed to limit the memory of all workers in their control group");
    }
}

/// Writes those values whose files exist: each version and controller has different files.
fn write_if_present<const N: usize>(group: &Path, values: [(&str, &str); N]) -> io::Result<()> {
    values.iter().map(|(file, value)| (group.join(file), value)).filter(|(file, _)| file.exists()).try_for_each(
        |(file, value)| {
            fs::write(&file, value)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
        },
    )
}
