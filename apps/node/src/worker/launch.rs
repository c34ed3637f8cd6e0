//! `svc-node --exec-worker`: drops privileges, sets limits and executes `workerd`.
//!
//! Only unsafe code can run between fork and exec. Therefore the node starts itself with this argument, and this
//! process drops privileges and then executes `workerd`. The order matters: files are opened before the user changes,
//! and a change of user resets the parent death signal.

use std::ffi::OsString;
use std::path::Path;
use std::process;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::config::Config;

/// The internal argument that selects this mode.
pub const ARGUMENT: &str = "--exec-worker";

/// The command that executes `workerd` with `folder`, as the user `uid` if given.
pub fn command(config: &Config, folder: &Path, uid: Option<u32>) -> Command {
    let mut command = Command::new(&config.launcher);
    command.arg0("svc-node");
    command.arg(ARGUMENT).arg(process::id().to_string());
    command.arg(uid.map_or_else(|| "-".to_owned(), |uid| uid.to_string())).arg(config.memory.to_string());
    command.arg(folder).arg(&config.workerd);
    command.env_clear().process_group(0);
    command
}

/// Executes `workerd`; returns only on an error. Call it while the process has one thread.
///
/// # Errors
/// Returns an error if a system call fails or the parent has exited.
pub fn exec(arguments: &[OsString]) -> anyhow::Result<()> {
    let [parent, uid, memory, folder, workerd] = arguments else { bail!("--exec-worker is for internal use") };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok()).context("not a number");
    let uid = if uid == "-" { None } else { Some(u32::try_from(number(uid)?)?) };
    let order = LaunchRequest { parent: number(parent)?, uid, memory: number(memory)?, folder, workerd };
    order.exec()
}

struct LaunchRequest<'a> {
    parent: u64,
    uid: Option<u32>,
    memory: u64,
    folder: &'a OsString,
    workerd: &'a OsString,
}

#[cfg(not(target_os = "linux"))]
impl LaunchRequest<'_> {
    fn exec(self) -> anyhow::Result<()> {
        bail!("workers run only on Linux")
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use anyhow::{Context as _, ensure};
    use rustix::fs::{Mode, OFlags, open};
    use rustix::process::{
        Gid, Pid, Resource, Rlimit, Signal, Uid, fchdir, getppid, getrlimit, nice, set_parent_process_death_signal,
        setrlimit, umask,
    };
    use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    use crate::worker::launch::LaunchRequest;

    /// Reserved but unused memory, in addition to the memory limit. V8 and its allocator reserve half a gigabyte.
    const RESERVED_BYTES: u64 = 768 << 20;
    const MAX_FILES: u64 = 4096;
    const MAX_THREADS: u64 = 64;
    /// Workers have a lower priority than other processes.
    const NICE: i32 = 10;
    const OOM_SCORE_ADJ: &str = "800";

    impl LaunchRequest<'_> {
        pub(super) fn exec(self) -> anyhow::Result<()> {
            // Without O_CLOEXEC: `workerd` inherits these two files.
            let folder = open(self.folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                .with_context(|| format!("{}", self.folder.display()))?;
            let workerd = open(self.workerd, OFlags::PATH, Mode::empty())
                .with_context(|| format!("{}", self.workerd.display()))?;
            fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ)?;
            // The socket paths in the configuration are relative.
            fchdir(&folder)?;
            umask(Mode::from_raw_mode(0o077));
            nice(NICE)?;
            self.limit()?;
            self.drop_privileges()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let parent = i32::try_from(self.parent)?;
            ensure!(getppid() == Pid::from_raw(parent), "the node exited before its worker started");
            let [folder, workerd] = [&folder, &workerd].map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
            let error = Command::new(workerd).arg("serve").arg(format!("{folder}/config.capnp")).env_clear().exec();
            Err(error).with_context(|| format!("{}", self.workerd.display()))
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
}
