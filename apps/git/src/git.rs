//! Runs git, with an environment that clients cannot influence.

mod command;

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use rustix::fs::{Access, access};
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::process::Rlimit;
use rustix::process::{Pid, Resource, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

pub use self::command::{decide, output};
use crate::hook::{HookSet, PUSH, PushHooks, SOCKET};

/// The oldest supported version of git. It is the first one that can pack unreachable objects (`gc.cruftPacks`).
const MIN_VERSION: (u32, u32) = (2, 37);
/// The time between SIGTERM, after which git removes its lock files, and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// The maximum data segment of a git process, in bytes. It does not include packs, because git maps them and does not
/// change them.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// The maximum CPU time of a git process that serves a client, in seconds. The limit is necessary because a pack of a
/// few bytes can need any amount of CPU time.
const MAX_CPU_SECONDS: u64 = 900;

/// git refuses to process an object that needs more memory than this (git(1)).
const ALLOC_LIMIT: &str = "512m";

/// A program that serves a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    UploadPack,
    ReceivePack,
    UploadArchive,
}

impl Program {
    /// Returns the program with this name, such as `git-upload-pack`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::UploadPack, Self::ReceivePack, Self::UploadArchive].into_iter().find(|program| program.name() == name)
    }

    /// Returns the name, as clients request it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::UploadPack => "git-upload-pack",
            Self::ReceivePack => "git-receive-pack",
            Self::UploadArchive => "git-upload-archive",
        }
    }

    /// Returns whether the program can change the repository.
    pub const fn writes(self) -> bool {
        matches!(self, Self::ReceivePack)
    }

    fn subcommand(self) -> &'static str {
        self.name().trim_start_matches("git-")
    }
}

/// Starts programs of git.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    dir: PathBuf,
}

/// A running git process. Dropping it ends its process group.
pub struct Process {
    child: Option<Child>,
    was_killed: bool,
    pub stdin: Option<ChildStdin>,
    pub stdout: Option<ChildStdout>,
    pub stderr: Option<ChildStderr>,
}

impl Git {
    /// Finds git in `PATH`, and checks its version.
    pub fn new(dir: &Path) -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path).map(|folder| folder.join("git")).find(|program| program.is_file());
        let (major, minor) = MIN_VERSION;
        let program = found.with_context(|| format!("git is not in PATH; install git {major}.{minor} or newer"))?;
        let git = Self { program, dir: dir.to_owned() };
        let version = git.command().arg("version").output().context("cannot start git")?.stdout;
        let version = String::from_utf8_lossy(&version);
        let is_supported = parse_version(&version).is_some_and(|version| version >= MIN_VERSION);
        let (program, version) = (git.program.display(), version.trim());
        ensure!(is_supported, "{program} is too old ({version}); install git {major}.{minor} or newer");
        Ok(git)
    }

    /// Checks that each hook can be executed, because git skips a hook that it cannot execute.
    pub fn check_hooks(&self, set: HookSet) -> anyhow::Result<()> {
        for name in set.hooks() {
            let hook = self.dir.join(set.folder()).join(name);
            access(&hook, Access::EXEC_OK).with_context(|| {
                format!(
                    "the hook {} cannot be executed; restart svc-git, and do not mount its directory with noexec",
                    hook.display()
                )
            })?;
        }
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env_clear();
        command.envs([
            ("PATH", OsStr::new("/usr/local/bin:/usr/bin:/bin")),
            ("LC_ALL", OsStr::new("C")),
            ("HOME", self.dir.join("home").as_os_str()),
            ("GIT_CONFIG_GLOBAL", self.dir.join("gitconfig").as_os_str()),
            ("GIT_CONFIG_NOSYSTEM", OsStr::new("1")),
            ("GIT_TERMINAL_PROMPT", OsStr::new("0")),
            ("GIT_NO_LAZY_FETCH", OsStr::new("1")),
            ("GIT_NO_REPLACE_OBJECTS", OsStr::new("1")),
            // git refuses an object that needs more memory.
            ("GIT_ALLOC_LIMIT", OsStr::new(ALLOC_LIMIT)),
            // After a restart, the node finds the processes of its earlier run by this variable.
            (SOCKET, self.dir.join("hook.sock").as_os_str()),
        ]);
        command.current_dir(self.dir.join("home")).stdin(Stdio::null());
        command
    }

    /// Returns a git command that the node runs for itself, in a repository. It runs no hooks.
    pub fn maintenance(&self, repository: Option<&Path>) -> Command {
        let mut command = self.command();
        command.args(["-c", "core.hooksPath=/dev/null"]);
        if let Some(repository) = repository {
            command.arg("--git-dir").arg(repository);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Starts a program for a client, in its own process group. `protocol` is the protocol version that the client
    /// requested. `max_file_bytes` limits the files that the program writes.
    pub fn serve(
        &self,
        program: Program,
        arguments: &[&str],
        repository: &Path,
        protocol: Option<&str>,
        push: Option<PushHooks<'_>>,
        max_file_bytes: Option<u64>,
    ) -> anyhow::Result<Process> {
        let set = push.map_or(HookSet::Journal, |push| push.set);
        if program.writes() {
            self.check_hooks(set)?;
        }
        let hooks = self.dir.join(set.folder());
        let mut command = self.command();
        command.arg("-c").arg(format!("core.hooksPath={}", hooks.display()));
        if program.writes() {
            // The node syncs the files of a push.
            command.args(["-c", "core.fsync=none"]);
        }
        command.arg(program.subcommand()).args(arguments).arg(repository);
        if let Some(protocol) = protocol.filter(|protocol| is_protocol(protocol)) {
            command.env("GIT_PROTOCOL", protocol);
        }
        if let Some(PushHooks { id, .. }) = push {
            command.env(PUSH, id);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let process = Process::start(command)?;
        process.limit(Resource::Cpu, MAX_CPU_SECONDS)?;
        if let Some(max) = max_file_bytes {
            process.limit(Resource::Fsize, max)?;
        }
        Ok(process)
    }
}

/// Parses the output of `git version`. Returns the first two numbers of the version.
fn parse_version(printed: &str) -> Option<(u32, u32)> {
    let mut numbers = printed.trim().strip_prefix("git version ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns whether a client may pass this protocol version to git: `version=2`, or several keys and numbers, separated
/// by colons.
pub fn is_protocol(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'=' | b':' | b'-'))
}

impl Process {
    /// Starts a process in its own process group, with limited memory.
    fn start(command: Command) -> anyhow::Result<Self> {
        let mut command = tokio::process::Command::from(command);
        let mut child = command.process_group(0).spawn().context("cannot start git")?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child: Some(child), was_killed: false, stdin, stdout, stderr };
        process.limit(Resource::Data, MAX_MEMORY_BYTES)?;
        Ok(process)
    }

    /// Limits a resource of the process. Its children inherit the limit, because they start only after the process has
    /// received input.
    fn limit(&self, resource: Resource, limit: u64) -> anyhow::Result<()> {
        let Some(program) = self.child.as_ref().and_then(group) else { return Ok(()) };
        // The process may have ended.
        match set_limit(program, resource, limit) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error).context("cannot limit the resources of git"),
        }
    }

    /// Returns whether the process ended without removing its lock files.
    pub const fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// Waits until the process ends. Returns its exit code.
    pub async fn wait(&mut self) -> anyhow::Result<u8> {
        let Some(child) = &mut self.child else { return Ok(0) };
        let group = group(child);
        let status = child.wait().await?;
        self.child = None;
        // git ends its own children, unless it was killed.
        signal(group, Signal::KILL);
        self.was_killed = was_killed(status);
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(255))
    }

    /// Ends the process group, and waits until the process has ended.
    pub async fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        self.was_killed |= end(&mut child).await;
    }
}

#[cfg(target_os = "linux")]
fn set_limit(program: Pid, resource: Resource, limit: u64) -> rustix::io::Result<()> {
    let limit = Rlimit { current: Some(limit), maximum: Some(limit) };
    rustix::process::prlimit(Some(program), resource, limit).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn set_limit(_: Pid, _: Resource, _: u64) -> rustix::io::Result<()> {
    // Only Linux lets a process limit another one. Only developers use other systems.
    Ok(())
}

/// Ends the process group. Returns whether the process was killed.
async fn end(child: &mut Child) -> bool {
    let group = group(child);
    signal(group, Signal::TERM);
    let ended = timeout(GRACE, child.wait()).await;
    signal(group, Signal::KILL);
    match ended {
        Ok(status) => status.is_ok_and(was_killed),
        Err(_) => {
            // This fails only if the child was already waited for.
            let _ = child.wait().await;
            true
        }
    }
}

/// Returns whether a signal ended the process. It may have left files behind: git removes its files when it handles a
/// signal, but its children can still create some.
fn was_killed(status: ExitStatus) -> bool {
    status.signal().is_some()
}

/// Returns the process group of a running child.
fn group(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?))
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // The process group may have ended.
        let _ = kill_process_group(group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let (Some(mut child), Ok(runtime)) = (self.child.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                end(&mut child).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_names_and_protocols_are_checked() {
        assert_eq!(Program::named("git-receive-pack"), Some(Program::ReceivePack));
        assert_eq!(Program::named("git"), None);
        assert!(is_protocol("version=2") && !is_protocol("version=2\n") && !is_protocol("a b"));
    }

    #[test]
    fn versions_are_parsed() {
        for (printed, version) in [
            ("git version 2.39.5\n", Some((2, 39))),
            ("git version 2.50.1 (Apple Git-155)\n", Some((2, 50))),
            ("git version 3.0\n", Some((3, 0))),
            ("git: not found\n", None),
            ("", None),
        ] {
            assert_eq!(parse_version(printed), version, "{printed}");
        }
    }
}
