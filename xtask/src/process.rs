//! Child processes that never outlive xtask, and signal handling.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::{Context, Result, ensure};
use kernel::error_chain;
use rustix::process::{Pid, Signal, getppid, kill_process_group};
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind};

/// The signal with this number requested a stop.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub struct Interrupted(u8);

impl Interrupted {
    /// Returns the exit code that shells use for a signal.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(128 + self.0)
    }
}

/// Converts the result of a command to an exit code. Prints an error, except after a signal.
pub fn exit_code(outcome: Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if let Some(stopped) = error.downcast_ref::<Interrupted>() {
            return stopped.exit_code();
        }
        let text = error_chain(&*error).to_string();
        eprintln!("error: {text}");
        if text.contains("relation \"") && text.ends_with("\" does not exist") {
            eprintln!("The database lacks tables: run `xtask migrate up`.");
        }
        ExitCode::FAILURE
    })
}

/// Returns the exit code of an ended program; a failure if a signal ended the program.
pub fn exit_code_of(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// Receives Ctrl-C and SIGTERM. After its creation, these signals do not end the process.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(unix::signal);
        Ok(Self { interrupt: interrupt?, terminate: terminate? })
    }

    pub async fn next(&mut self) -> Interrupted {
        tokio::select! {
            _ = self.interrupt.recv() => Interrupted(2),
            _ = self.terminate.recv() => Interrupted(15),
        }
    }

    /// Runs a program and waits for it. Signals are forwarded to the program's separate process group, so that no
    /// process receives a signal twice.
    pub async fn run(&mut self, mut command: Command) -> Result<ExitStatus> {
        command.process_group(0);
        let description = format!("{command:?}");
        let mut child = tokio::process::Command::from(command).spawn().context(description)?;
        let group = pid(&child);
        tokio::select! {
            status = child.wait() => Ok(status?),
            stopped = self.next() => {
                if let Some(group) = group {
                    // The processes may have ended.
                    let _ = kill_process_group(group, Signal::TERM);
                }
                child.wait().await?;
                Err(stopped.into())
            }
        }
    }
}

/// `exec-child`: runs a program that ends even if xtask is killed. The kernel can signal a process when the thread that
/// started it ends, but the process must request this signal. A request between fork and exec would need unsafe code.
/// So xtask starts itself with this command, which requests the signal and then calls exec.
#[derive(clap::Args)]
pub struct ExecChild {
    #[arg(long)]
    parent: i32,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

impl ExecChild {
    /// Builds a command that runs the program as a child that ends with this thread.
    pub fn wrap(program: &Path) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["exec-child", "--parent", &std::process::id().to_string(), "--"]).arg(program);
        Ok(command)
    }

    pub fn run(self) -> Result<ExitCode> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        ensure!(getppid() == Pid::from_raw(self.parent), "xtask ended before its child started");
        let (program, arguments) = self.command.split_first().context("no command")?;
        Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{}", program.display()))
    }
}

/// Returns the child's process id, unless the child has been waited for.
pub fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(child.id()?.cast_signed())
}
