//! The control groups that the node belongs to, as folders of the mounted file systems.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// The controllers that limit workers.
pub const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// The version of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Each controller has its own hierarchy.
    One,
    /// All controllers have one hierarchy.
    Two,
}

/// Returns the groups of this process that have the [`CONTROLLERS`]: a single group with version 2, or one group per
/// controller with version 1.
pub fn own_groups() -> anyhow::Result<(Version, Vec<PathBuf>)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    if let Some(unified) = find_unified(&mounts, &groups) {
        let controllers = fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        if CONTROLLERS.iter().all(|controller| controllers.split_whitespace().any(|other| other == *controller)) {
            return Ok((Version::Two, vec![unified]));
        }
    }
    let find = |controller| {
        find_controller(&mounts, &groups, controller)
            .with_context(|| format!("the controller {controller} is not available to the node"))
    };
    let folders = CONTROLLERS.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
    for folder in &folders {
        ensure!(folder.is_dir(), "{} does not exist", folder.display());
    }
    Ok((Version::One, folders))
}

/// Returns the lowest memory limit of this process's groups in bytes; `None` without a limit. The groups need not have
/// all [`CONTROLLERS`].
pub fn own_memory_limit() -> Option<u64> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let unified = find_unified(&mounts, &groups).map(|group| (group, "memory.max"));
    let separate = find_controller(&mounts, &groups, "memory").map(|group| (group, "memory.limit_in_bytes"));
    unified.into_iter().chain(separate).filter_map(|(group, file)| lowest_limit(&group, file)).min()
}

/// Returns the lowest number in this file of the group and the groups that contain it. The file contains `max` without
/// a limit.
fn lowest_limit(group: &Path, file: &str) -> Option<u64> {
    let read = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    group.ancestors().filter_map(read).min()
}

fn find_unified(mounts: &str, groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().filter_map(Mount::parse).find(|mount| mount.kind == "cgroup2")?.folder(group)
}

fn find_controller(mounts: &str, groups: &str, controller: &str) -> Option<PathBuf> {
    let has_controller = |list: &str| list.split(',').any(|other| other == controller);
    // proc_pid_cgroup(5): hierarchy, controllers and path, separated by colons.
    let mut own = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let (_, group) = own.find(|(controllers, _)| has_controller(controllers))?;
    let mut mounts = mounts.lines().filter_map(Mount::parse);
    mounts.find(|mount| mount.kind == "cgroup" && has_controller(mount.options))?.folder(group)
}

/// A mounted file system.
struct Mount<'a> {
    /// The folder of the file system that is mounted.
    root: &'a str,
    path: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line of `mountinfo`, proc_pid_mountinfo(5).
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut file_system = file_system.split(' ');
        let (root, path) = (mount.next()?, mount.next()?);
        Some(Self { root, path, kind: file_system.next()?, options: file_system.nth(1)? })
    }

    /// Returns the folder of a group; `None` if it is not below the mounted folder.
    fn folder(&self, group: &str) -> Option<PathBuf> {
        let relative = Path::new(group).strip_prefix(self.root).ok()?;
        Some(Path::new(self.path).join(relative))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_limit_of_a_group_and_its_parents_applies() {
        let root = std::env::temp_dir().join(format!("svc-cgroup-{}", std::process::id()));
        let (slice, service) = (root.join("slice"), root.join("slice/service"));
        fs::create_dir_all(&service).unwrap();
        assert_eq!(lowest_limit(&service, "memory.max"), None);
        for (group, limit) in [(&root, "4096\n"), (&slice, "1024\n"), (&service, "max\n")] {
            fs::write(group.join("memory.max"), limit).unwrap();
        }
        assert_eq!(lowest_limit(&service, "memory.max"), Some(1024));
        assert_eq!(lowest_limit(&root, "memory.max"), Some(4096));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn groups_are_found_in_both_versions_and_in_containers() {
        let mounts = "\
24 1 8:1 / / rw - ext4 /dev/root rw
30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
32 24 0:28 /docker/c1 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
";
        let groups = "5:memory:/docker/c1/inner\n4:cpu,cpuacct:/a.slice\n1:name=systemd:/\n0::/b.slice/c.service\n";
        assert_eq!(find_unified(mounts, groups), Some("/sys/fs/cgroup/b.slice/c.service".into()));
        assert_eq!(find_controller(mounts, groups, "cpu"), Some("/sys/fs/cgroup/cpu,cpuacct/a.slice".into()));
        assert_eq!(find_controller(mounts, groups, "memory"), Some("/sys/fs/cgroup/memory/inner".into()));
        assert_eq!(find_controller(mounts, groups, "pids"), None);
        assert_eq!(find_controller(mounts, "5:memory:/other\n", "memory"), None);
    }
}
