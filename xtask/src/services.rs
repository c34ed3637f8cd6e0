//! Starts and stops the services of `dev` and the lab: Postgres, the server, the node and others.

mod log;

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use rustix::process::{Signal, kill_process};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep, timeout};

use crate::postgres::Cluster;
use crate::process::{ExecChild, Signals, pid};

/// The interval at which the services are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest graceful shutdown of a program. docs/operations.md also names it.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(40);

/// The running services, and the signals that stop them. A drop kills the programs.
pub struct Services {
    pub signals: Signals,
    /// The Postgres cluster, unless the database is external.
    pub postgres: Option<Cluster>,
    /// The Postgres cluster with the databases of projects, if it is not external.
    pub projects_postgres: Option<Cluster>,
    /// The programs in the order of their start.
    programs: Vec<Program>,
}

struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
    follower: JoinHandle<()>,
}

impl Services {
    pub fn new(signals: Signals) -> Self {
        Self { signals, postgres: None, projects_postgres: None, programs: Vec::new() }
    }

    /// Starts a program and returns its process id. Its output goes to a file, which is followed and printed: a pipe
    /// would break if xtask is killed.
    pub fn start(
        &mut self,
        name: &'static str,
        program: &Path,
        folder: &Path,
        configure: impl FnOnce(&mut Command),
    ) -> Result<u32> {
        let file = folder.join(format!("{name}.log"));
        let output = File::create(&file).with_context(|| format!("{}", file.display()))?;
        let follower = tokio::spawn(log::follow(name, File::open(&file)?));
        let mut command = ExecChild::wrap(program)?;
        configure(&mut command);
        // A separate process group, so that Ctrl-C reaches only xtask and the services stop in order.
        command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
        let id = child.id().with_context(|| format!("the {name} exited immediately"))?;
        self.programs.push(Program { name, child, log: file, follower });
        Ok(id)
    }

    /// Runs `work`, unless a signal arrives or a service exits first.
    pub async fn supervise<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let clusters = [&mut self.postgres, &mut self.projects_postgres];
        tokio::select! {
            stopped = self.signals.next() => Err(stopped.into()),
            error = wait_for_exit(clusters, &mut self.programs) => Err(error),
            done = work => done,
        }
    }

    /// Stops the programs with this name gracefully.
    pub async fn stop_program(&mut self, name: &str) {
        for program in self.programs.extract_if(.., |program| program.name == name) {
            program.stop(&mut self.signals).await;
        }
    }

    /// Stops all services in the reverse order of their start.
    pub async fn stop(mut self) {
        for program in self.programs.into_iter().rev() {
            program.stop(&mut self.signals).await;
        }
        drop((self.projects_postgres, self.postgres));
    }
}

/// Waits until a service exits unexpectedly.
async fn wait_for_exit(mut clusters: [&mut Option<Cluster>; 2], programs: &mut [Program]) -> Error {
    let mut interval = interval(POLL_INTERVAL);
    loop {
        interval.tick().await;
        for cluster in clusters.iter_mut().filter_map(|it| it.as_mut()) {
            if !cluster.is_running() {
                return anyhow!("Postgres exited unexpectedly; see {}", cluster.log().display());
            }
        }
        for program in programs.iter_mut() {
            if let Ok(Some(status)) = program.child.try_wait() {
                return anyhow!("the {} exited unexpectedly ({status}); see {}", program.name, program.log.display());
            }
        }
    }
}

impl Program {
    /// Sends SIGTERM and waits for a graceful shutdown. Kills the program after the timeout or another signal.
    async fn stop(mut self, signals: &mut Signals) {
        if let Some(pid) = pid(&self.child) {
            // The program may have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        tokio::select! {
            _ = timeout(SHUTDOWN_TIMEOUT, self.child.wait()) => {}
            _ = signals.next() => {}
        }
        // Fails only if the program has ended.
        let _ = self.child.kill().await;
        // Leave time to print the last lines of the log.
        sleep(POLL_INTERVAL * 2).await;
        self.follower.abort();
    }
}
