//! `svc-node --exec-worker`: applies the protections of a worker process, and executes `workerd`.
//!
//! Safe code cannot run between fork and exec. Therefore the node starts itself with `--exec-worker`. The new process
//! drops privileges and then executes `workerd`. The order matters: the control group, the namespaces and the files
//! need privileges, a change of user resets the parent death signal, and the seccomp filter prevents the other steps.

use std::ffi::OsString;
use std::path::Path;
use std::process;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::cgroup::Cgroup;
use super::config::Config;
use super::protection::Protection;

/// The internal argument that selects this mode.
pub const ARGUMENT: &str = "--exec-worker";
/// The argument that follows and selects a check of the available protections, instead of executing `workerd`.
const CHECK: &str = "check";

/// A process to start.
pub struct Launch<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The folder of the process.
    pub folder: &'a Path,
    /// The user id of the process; `None` for the node's.
    pub uid: Option<u32>,
    /// The protections to apply. If a protection fails, the start fails.
    pub protections: &'a [Protection],
    /// The control group of the process.
    pub cgroup: Option<&'a Cgroup>,
}

impl Launch<'_> {
    /// Returns the command that executes `workerd`.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.config.launcher);
        command.arg0("svc-node");
        command.arg(ARGUMENT).arg(process::id().to_string());
        command.arg(self.uid.map_or_else(|| "-".to_owned(), |uid| uid.to_string()));
        command.arg(self.config.memory.to_string()).arg(self.folder).arg(&self.config.workerd);
        command.arg(self.protections.iter().map(|protection| protection.name()).collect::<Vec<_>>().join(","));
        command.args(self.cgroup.iter().flat_map(|cgroup| cgroup.process_lists()));
        command.env_clear().process_group(0);
        command
    }
}

/// Returns the command that tries the protections of the kernel with this folder. It prints the unavailable ones: a
/// line with the name, a tab and the reason.
pub fn check_command(config: &Config, folder: &Path) -> process::Command {
    let mut command = process::Command::new(&config.launcher);
    command.arg(ARGUMENT).arg(CHECK).arg(folder).arg(&config.workerd).env_clear();
    command
}

/// Replaces this process with `workerd`, or checks the protections. Must be called while the process has one thread.
///
/// # Errors
/// Returns an error if a system call fails or the parent has exited.
pub fn exec(arguments: &[OsString]) -> anyhow::Result<()> {
    const INTERNAL: &str = "--exec-worker is for internal use";
    if let [check, folder, workerd] = arguments
        && check == CHECK
    {
        return exec_check(folder.as_ref(), workerd.as_ref());
    }
    let [parent, uid, memory, folder, workerd, protections, cgroup @ ..] = arguments else { bail!(INTERNAL) };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok()).context("not a number");
    let uid = if uid == "-" { None } else { Some(u32::try_from(number(uid)?)?) };
    let names = protections.to_str().context(INTERNAL)?.split(',').filter(|name| !name.is_empty());
    let protections = names.map(|name| Protection::from_name(name).context(INTERNAL)).collect::<Result<_, _>>()?;
    let (parent, memory) = (number(parent)?, number(memory)?);
    let request =
        LaunchRequest { parent, uid, memory, folder: folder.as_ref(), workerd: workerd.as_ref(), protections, cgroup };
    request.exec()
}

struct LaunchRequest<'a> {
    parent: u64,
    uid: Option<u32>,
    memory: u64,
    folder: &'a Path,
    workerd: &'a Path,
    protections: Vec<Protection>,
    /// The files that add a process to the control group.
    cgroup: &'a [OsString],
}

#[cfg(not(target_os = "linux"))]
impl LaunchRequest<'_> {
    fn exec(self) -> anyhow::Result<()> {
        bail!("workers run only on Linux")
    }
}

#[cfg(not(target_os = "linux"))]
fn exec_check(_: &Path, _: &Path) -> anyhow::Result<()> {
    bail!("workers run only on Linux")
}

#[cfg(target_os = "linux")]
use linux::exec_check;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::fd::{AsRawFd as _, OwnedFd};
    use std::os::unix::process::CommandExt as _;
    use std::path::Path;
    use std::process::Command;

    use anyhow::{Context as _, ensure};
    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{
        Gid, Pid, Resource, Rlimit, Signal, Uid, fchdir, getppid, getrlimit, nice, set_parent_process_death_signal,
        setrlimit, umask,
    };
    use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    use crate::worker::config::MAX_THREADS;
    use crate::worker::launch::LaunchRequest;
    use crate::worker::protection::Protection;
    use crate::worker::sandbox::{Paths, landlock, mounts, seccomp};

    /// Address space for reserved but unused memory, in addition to the memory limit. V8 and its allocator reserve half
    /// a gigabyte.
    const RESERVED_BYTES: u64 = 768 << 20;
    const MAX_FILES: u64 = 4096;
    /// Workers have a lower priority than other processes.
    const NICE: i32 = 10;
    const OOM_SCORE_ADJ: &str = "800";

    impl LaunchRequest<'_> {
        pub(super) fn exec(self) -> anyhow::Result<()> {
            for list in self.cgroup {
                fs::write(list, "0").with_context(|| format!("{}", list.display()))?;
            }
            fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ)?;
            // `_open` must not be dropped, because that would close the files that the paths refer to.
            let (paths, _open) = self.enter_namespaces()?;
            umask(Mode::from_raw_mode(0o077));
            nice(NICE)?;
            self.limit()?;
            self.drop_privileges()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let parent = i32::try_from(self.parent)?;
            ensure!(getppid() == Pid::from_raw(parent), "the node exited before its worker started");
            if self.applies(Protection::Landlock) {
                landlock::restrict(&paths).context("Landlock")?;
            }
            if self.applies(Protection::Seccomp) {
                seccomp::restrict().context("seccomp")?;
            }
            // `workerd` then reads the configuration from its standard input.
            let error = Command::new(paths.workerd).args(["serve", "--binary", "-"]).env_clear().exec();
            Err(error).with_context(|| format!("{}", self.workerd.display()))
        }

        fn applies(&self, protection: Protection) -> bool {
            self.protections.contains(&protection)
        }

        fn enter_namespaces(&self) -> anyhow::Result<(Paths, Option<[OwnedFd; 2]>)> {
            if self.applies(Protection::NetworkNamespace) {
                mounts::leave_network().context("network namespace")?;
            }
            if self.applies(Protection::MountNamespace) {
                return Ok((mounts::replace_root(self.folder, self.workerd).context("mount namespace")?, None));
            }
            let (paths, open) = open_paths(self.folder, self.workerd)?;
            Ok((paths, Some(open)))
        }

        fn limit(&self) -> anyhow::Result<()> {
            let mut limits = vec![
                (Resource::Core, 0),
                (Resource::Nofile, MAX_FILES),
                (Resource::Data, self.memory.saturating_add(RESERVED_BYTES)),
            ];
            // The limit counts all threads of the user, so it requires a separate user id.
            if self.uid.is_some() {
                limits.push((Resource::Nproc, MAX_THREADS));
            }
            for (resource, limit) in limits {
                // Only root may raise an inherited limit.
                let limit = getrlimit(resource).maximum.map_or(limit, |inherited| limit.min(inherited));
                setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
            }
            Ok(())
        }

        fn drop_privileges(&self) -> anyhow::Result<()> {
            if let Some(number) = self.uid {
                let (uid, gid) = (Uid::from_raw(number), Gid::from_raw(number));
                set_thread_groups(&[])?;
                set_thread_res_gid(gid, gid, gid)?;
                set_thread_res_uid(uid, uid, uid)?;
            }
            Ok(set_no_new_privs(true)?)
        }
    }

    /// Opens the folder, which becomes the current directory, and the program. The user of the process can open the
    /// returned paths, because they lead through open files. `workerd` inherits these files, because they have no
    /// `O_CLOEXEC`.
    fn open_paths(folder: &Path, workerd: &Path) -> anyhow::Result<(Paths, [OwnedFd; 2])> {
        let open = |path: &Path, flags| {
            open(path, OFlags::PATH | flags, Mode::empty()).with_context(|| format!("{}", path.display()))
        };
        let open = [open(folder, OFlags::DIRECTORY)?, open(workerd, OFlags::empty())?];
        let [folder, workerd] = open.each_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()).into());
        // The socket paths in the configuration are relative.
        fchdir(&open[0])?;
        Ok((Paths { folder, workerd }, open))
    }

    /// Applies the protections, as far as possible, and prints the unavailable ones.
    pub(super) fn exec_check(folder: &Path, workerd: &Path) -> anyhow::Result<()> {
        let (mut paths, _open) = open_paths(folder, workerd)?;
        set_no_new_privs(true)?;
        for protection in Protection::OF_KERNEL {
            let applied = match protection {
                Protection::NetworkNamespace => mounts::leave_network(),
                Protection::MountNamespace => mounts::replace_root(folder, workerd).map(|replaced| paths = replaced),
                Protection::Landlock => landlock::restrict(&paths),
                Protection::Seccomp => seccomp::restrict(),
                Protection::UserId | Protection::Cgroup => Ok(()),
            };
            if let Err(error) = applied {
                println!("{}\t{}", protection.name(), format!("{error:#}").replace('\n', " "));
            }
        }
        Ok(())
    }
}
