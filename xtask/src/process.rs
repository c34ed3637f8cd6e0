//! Other programs: run to their end, or kept running, and in either case not left behind.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, getppid, kill_process, kill_process_group};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{interval, timeout};

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

/// Ctrl-C and SIGTERM. From its making on, they no longer end the process by themselves.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    pub fn listen() -> Result<Self> {
        let [interrupt, terminate] = [SignalKind::interrupt(), SignalKind::terminate()].map(unix::signal);
        Ok(Self {
            interrupt: interrupt?,
            terminate: terminate?,
        })
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
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
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
    fn wrap(program: &Path) -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["exec-child", "--parent", &std::process::id().to_string(), "--"])
            .arg(program);
        Ok(command)
    }

    pub fn run(self) -> Result<ExitCode> {
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
        if getppid() != Pid::from_raw(self.parent) {
            bail!("xtask ended before its child began");
        }
        let (program, arguments) = self.command.split_first().context("no command")?;
        Err(Command::new(program).args(arguments).exec()).with_context(|| format!("{}", program.display()))
    }
}

/// A program that is to run as long as xtask does.
pub struct Service {
    name: &'static str,
    child: tokio::process::Child,
    log: PathBuf,
    follower: tokio::task::JoinHandle<()>,
}

impl Service {
    /// Starts it with its output in a file, from where it is shown: a pipe would break, and the program with it, when
    /// xtask is killed.
    pub fn start(
        name: &'static str,
        program: &Path,
        configure: impl FnOnce(&mut Command),
        log: PathBuf,
    ) -> Result<Self> {
        let output = File::create(&log).with_context(|| format!("{}", log.display()))?;
        let follower = tokio::spawn(follow(name, File::open(&log)?));
        let mut command = ExecChild::wrap(program)?;
        configure(&mut command);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        command.process_group(0);
        let child = tokio::process::Command::from(command).spawn()?;
        Ok(Self {
            name,
            child,
            log,
            follower,
        })
    }

    /// Why it is not running any more, if it is not.
    fn ended(&mut self) -> Option<anyhow::Error> {
        let status = self.child.try_wait().ok()??;
        Some(anyhow!(
            "the {} ended by itself ({status}); its output is in {}",
            self.name,
            self.log.display()
        ))
    }

    /// Asks it to end and gives it the time in which it promises to; a signal meanwhile means now.
    async fn stop(mut self, signals: &mut Signals) {
        const PROMISED: Duration = Duration::from_secs(30);
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, Signal::TERM);
        }
        tokio::select! {
            _ = timeout(PROMISED, self.child.wait()) => {}
            _ = signals.next() => {}
        }
        let _ = self.child.kill().await;
        tokio::time::sleep(GLANCE).await;
        self.follower.abort();
    }
}

/// Services in the order of their start.
#[derive(Default)]
pub struct Services(Vec<Service>);

/// How often running programs are looked at.
const GLANCE: Duration = Duration::from_millis(50);

impl Services {
    pub fn add(&mut self, service: Service) {
        self.0.push(service);
    }

    /// Waits for `work`, a signal, or the end of a service, whichever comes first.
    pub async fn during<T>(&mut self, signals: &mut Signals, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            stopped = signals.next() => Err(stopped.into()),
            error = self.ended() => Err(error),
            done = work => done,
        }
    }

    async fn ended(&mut self) -> anyhow::Error {
        let mut glance = interval(GLANCE);
        loop {
            glance.tick().await;
            if let Some(error) = self.0.iter_mut().find_map(Service::ended) {
                return error;
            }
        }
    }

    /// Stops all of them, the last one first.
    pub async fn stop(self, signals: &mut Signals) {
        for service in self.0.into_iter().rev() {
            service.stop(signals).await;
        }
    }
}

/// Shows what is written to a log, line by line, under the name of who wrote it.
async fn follow(name: &'static str, mut log: File) {
    let mut unfinished = Vec::new();
    let mut glance = interval(GLANCE);
    loop {
        glance.tick().await;
        if log.read_to_end(&mut unfinished).is_err() {
            return;
        }
        let Some(end) = unfinished.iter().rposition(|byte| *byte == b'\n') else {
            continue;
        };
        let rest = unfinished.split_off(end + 1);
        let mut out = std::io::stdout().lock();
        for line in String::from_utf8_lossy(&unfinished).lines() {
            // Nobody may be reading any more; the log has it.
            let _ = writeln!(out, "{name:>6} | {line}");
        }
        unfinished = rest;
    }
}
