//! A root directory for one process, in a mount namespace.
//!
//! File permissions do not suffice: many programs listen on sockets in the file system that every user may connect to,
//! and a network namespace does not separate these.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};
use std::os::fd::AsRawFd as _;

use super::Paths;

/// The directories with the libraries of `workerd`. Not every system has all of them.
pub const LIBRARIES: [&str; 5] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store"];
/// The only device that `workerd` opens.
pub const RANDOM: &str = "/dev/urandom";

const PROGRAM: &str = "/workerd";

/// Enters a network namespace without a usable interface.
pub fn leave_network() -> anyhow::Result<()> {
    Ok(unshare(CloneFlags::CLONE_NEWNET)?)
}

/// Replaces the root directory. The folder keeps its path, and becomes the current directory.
pub fn replace_root(folder: &Path, workerd: &Path) -> anyhow::Result<Paths> {
    let folder = fs::canonicalize(folder)?;
    let root = folder.parent().context("the folder has no parent")?.to_owned();
    unshare(CloneFlags::CLONE_NEWNS)?;
    // The mounts of this process must not become visible to the machine.
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    // The folder is opened before the new root hides it.
    let open = openat(CWD, &folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("worker", &root, "tmpfs", flags, c"mode=0755,size=64k").context("failed to mount the root directory")?;
    let root = Root(root);
    root.bind_directory(&format!("/proc/self/fd/{}", open.as_raw_fd()), &folder, flags | MountFlags::NOEXEC)?;
    for library in LIBRARIES.iter().filter(|library| Path::new(library).is_dir()) {
        root.bind_directory(library, Path::new(library), flags | MountFlags::RDONLY)?;
    }
    root.bind_file(workerd, Path::new(PROGRAM), flags | MountFlags::RDONLY)?;
    root.bind_file(Path::new(RANDOM), Path::new(RANDOM), MountFlags::NOSUID | MountFlags::NOEXEC)?;
    root.enter()?;
    chdir(&folder)?;
    Ok(Paths { folder, workerd: PROGRAM.into() })
}

/// The new root directory, before the process enters it.
struct Root(PathBuf);

impl Root {
    fn bind_directory(&self, source: &str, target: &Path, flags: MountFlags) -> anyhow::Result<()> {
        let inside = self.path(target)?;
        fs::create_dir_all(&inside)?;
        bind(Path::new(source), &inside, flags)
    }

    fn bind_file(&self, source: &Path, target: &Path, flags: MountFlags) -> anyhow::Result<()> {
        let inside = self.path(target)?;
        inside.parent().map_or(Ok(()), fs::create_dir_all)?;
        File::create_new(&inside)?;
        bind(source, &inside, flags)
    }

    fn path(&self, target: &Path) -> anyhow::Result<PathBuf> {
        Ok(self.0.join(target.strip_prefix("/")?))
    }

    fn enter(self) -> anyhow::Result<()> {
        chdir(&self.0)?;
        // pivot_root(2): with the same directory twice, the old root is mounted over the new one.
        pivot_root(".", ".").context("failed to change the root directory")?;
        unmount(".", UnmountFlags::DETACH)?;
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        Ok(mount_remount("/", flags, c"")?)
    }
}

fn bind(source: &Path, target: &Path, flags: MountFlags) -> anyhow::Result<()> {
    let bind = || {
        mount_bind(source, target)?;
        mount_remount(target, MountFlags::BIND | flags, c"")
    };
    bind().with_context(|| format!("failed to mount {}", source.display()))
}
