//! Other programs, and how none of them is left behind.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, getppid, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

/// Somebody asked xtask to stop, by the signal of this number.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub struct Stopped(u8);

impl Stopped {
    /// As shells have it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(128 + self.0)
    }
}

/// The exit code of a program's outcome. An error is printed, unless it is that the program was asked to stop.
pub fn exit_code(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if let Some(stopped) = error.downcast_ref::<Stopped>() {
            return stopped.exit_code();
        }
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

/// Ctrl-C and SIGTERM. From its making on, they no longer end the process by themselves.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(unix::signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate? })
    }

    pub async fn next(&mut self) -> Stopped {
        tokio::select! {
            _ = self.interrupt.recv() => Stopped(2),
            _ = self.terminate.recv() => Stopped(15),
        }
    }

    /// Runs a program to its end. When a signal comes first, it goes on to the program and all it has started, which
    /// are a group of their own so that none of them gets it twice.
    pub async fn run(&mut self, mut command: Command) -> Result<ExitStatus> {
        command.process_group(0);
        let described = format!("{command:?}");
        let mut child = tokio::process::Command::from(command).spawn().context(described)?;
        let group = pid(&child);
        tokio::select! {
            status = child.wait() => Ok(status?),
            stopped = self.next() => {
                if let Some(group) = group {
                    let _ = kill_process_group(group, Signal::TERM);
                }
                child.wait().await?;
                Err(stopped.into())
            }
        }
    }
}

/// `exec-child`: how a child is made to end even when xtask is killed. The kernel sends the signal when the thread that
/// started the child ends; setting that up between fork and exec would need unsafe code.
#[derive(clap::Args)]
pub struct ExecChild {
    #[arg(long)]
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl ExecChild {
    /// The program, as a child of this thread that ends with it.
    pub fn wrap(program: &Path) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["exec-child", "--parent", &std::process::id().to_string(), "--"]).arg(program);
        Ok(command)
    }

    pub fn run(self) -> Result<ExitCode> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        ensure!(getppid() == Pid::from_raw(self.parent), "xtask ended before its child began");
        let (program, arguments) = self.command.split_first().context("no command")?;
        Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{}", program.display()))
    }
}

/// The child's process, unless it has been waited for.
pub fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id()?.cast_signed())
}
