//! `svc-node --exec-worker`: what stands between the node's fork and `workerd`.
//!
//! Between fork and exec only unsafe code can run, so the node starts itself again, and this gives up everything that a
//! worker must not have and then becomes `workerd`. The order matters: files are opened while that is still allowed,
//! and a change of user takes the signal of the parent's death away.

use std::ffi::OsString;
use std::path::Path;
use std::process;

use anyhow::{Context as _, bail};
use tokio::process::Command;

use super::config::Config;

/// The argument that asks for this.
pub const ARGUMENT: &str = "--exec-worker";

/// The command that becomes a `workerd` on `folder`, as the user `uid` where that is given.
pub fn command(config: &Config, folder: &Path, uid: Option<u32>) -> Command {
    let mut command = Command::new(&config.launcher);
    command.arg0("svc-node");
    command.arg(ARGUMENT).arg(process::id().to_string());
    command.arg(uid.map_or_else(|| "-".to_owned(), |uid| uid.to_string())).arg(config.memory.to_string());
    command.arg(folder).arg(&config.workerd);
    command.env_clear().process_group(0);
    command
}

/// Becomes `workerd`; comes back only to say why not. Call it while the process has one thread.
///
/// # Errors
/// Something was refused, or the parent has ended.
pub fn exec(arguments: &[OsString]) -> anyhow::Result<()> {
    let [parent, uid, memory, folder, workerd] = arguments else { bail!("this is for svc-node itself") };
    let number = |text: &OsString| text.to_str().and_then(|text| text.parse::<u64>().ok()).context("not a number");
    let uid = if uid == "-" { None } else { Some(u32::try_from(number(uid)?)?) };
    let order = Order { parent: number(parent)?, uid, memory: number(memory)?, folder, workerd };
    order.exec()
}

struct Order<'a> {
    parent: u64,
    uid: Option<u32>,
    memory: u64,
    folder: &'a OsString,
    workerd: &'a OsString,
}

#[cfg(not(target_os = "linux"))]
impl Order<'_> {
    fn exec(self) -> anyhow::Result<()> {
        bail!("workers run on Linux alone")
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

    use crate::worker::launch::Order;

    /// Beside what it has in use, what it may have set aside; V8 and its allocator set aside half a gigabyte.
    const ASIDE: u64 = 768 << 20;
    const FILES: u64 = 4096;
    const THREADS: u64 = 64;
    /// Behind everything else on the machine.
    const NICE: i32 = 10;
    const FIRST_TO_GO_WHEN_MEMORY_IS_SHORT: &str = "800";

    impl Order<'_> {
        pub(super) fn exec(self) -> anyhow::Result<()> {
            // Without O_CLOEXEC: these two are what it gets.
            let folder = open(self.folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())
                .with_context(|| format!("{}", self.folder.display()))?;
            let workerd = open(self.workerd, OFlags::PATH, Mode::empty())
                .with_context(|| format!("{}", self.workerd.display()))?;
            fs::write("/proc/self/oom_score_adj", FIRST_TO_GO_WHEN_MEMORY_IS_SHORT)?;
            // Its sockets' addresses are relative.
            fchdir(&folder)?;
            umask(Mode::from_raw_mode(0o077));
            nice(NICE)?;
            self.limit()?;
            self.drop_privileges()?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            let parent = i32::try_from(self.parent)?;
            ensure!(getppid() == Pid::from_raw(parent), "the node ended before its worker began");
            let [folder, workerd] = [&folder, &workerd].map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
            let error = Command::new(workerd).arg("serve").arg(format!("{folder}/config.capnp")).env_clear().exec();
            Err(error).with_context(|| format!("{}", self.workerd.display()))
        }

        fn limit(&self) -> anyhow::Result<()> {
            let mut limits = vec![
                (Resource::Core, 0),
                (Resource::Nofile, FILES),
                (Resource::Data, self.memory.saturating_add(ASIDE)),
            ];
            // It counts all of the user's, and without an id of its own the user is not the worker.
            if self.uid.is_some() {
                limits.push((Resource::Nproc, THREADS));
            }
            for (resource, wanted) in limits {
                // Nobody but root may have more than what was inherited.
                let most = getrlimit(resource).maximum.map_or(wanted, |inherited| wanted.min(inherited));
                setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
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
