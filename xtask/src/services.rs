//! What `dev` and the lab keep running: Postgres, the server, the node.

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

/// How often what runs is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Everything that runs, and the signals that end it.
pub struct Services {
    pub signals: Signals,
    /// Unless somebody else looks after the database.
    pub postgres: Option<Cluster>,
    /// In the order of their start.
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
        Self { signals, postgres: None, programs: Vec::new() }
    }

    /// Starts a program with its output in a file, from where it is shown: a pipe would break, and the program with it,
    /// when xtask is killed. Gives its process.
    pub fn start(
        &mut self,
        name: &'static str,
        program: &Path,
        folder: &Path,
        give: impl FnOnce(&mut Command),
    ) -> Result<u32> {
        let file = folder.join(format!("{name}.log"));
        let output = File::create(&file).with_context(|| format!("{}", file.display()))?;
        let follower = tokio::spawn(log::follow(name, File::open(&file)?));
        let mut command = ExecChild::wrap(program)?;
        give(&mut command);
        // A group of its own, so that Ctrl-C reaches xtask alone and things stop in their order.
        command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = tokio::process::Command::from(command).spawn()?;
        let id = child.id().with_context(|| format!("the {name} ended at once"))?;
        self.programs.push(Program { name, child, log: file, follower });
        Ok(id)
    }

    /// Waits for `work`, a signal, or the end of something that is to run, whichever comes first.
    pub async fn during<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            stopped = self.signals.next() => Err(stopped.into()),
            error = ended(&mut self.postgres, &mut self.programs) => Err(error),
            done = work => done,
        }
    }

    /// Stops everything, in the opposite order of its start.
    pub async fn stop(mut self) {
        for program in self.programs.into_iter().rev() {
            program.stop(&mut self.signals).await;
        }
        drop(self.postgres);
    }
}

/// Waits until something has ended by itself.
async fn ended(postgres: &mut Option<Cluster>, programs: &mut [Program]) -> Error {
    let mut glance = interval(GLANCE);
    loop {
        glance.tick().await;
        if let Some(cluster) = postgres
            && !cluster.is_running()
        {
            return anyhow!("Postgres ended by itself; its log is {}", cluster.log().display());
        }
        for program in programs.iter_mut() {
            if let Ok(Some(status)) = program.child.try_wait() {
                return anyhow!(
                    "the {} ended by itself ({status}); its log is {}",
                    program.name,
                    program.log.display()
                );
            }
        }
    }
}

impl Program {
    /// Asks it to end and gives it the time in which it promises to; a signal meanwhile means now.
    async fn stop(mut self, signals: &mut Signals) {
        const PROMISED: Duration = Duration::from_secs(30);
        if let Some(pid) = pid(&self.child) {
            let _ = kill_process(pid, Signal::TERM);
        }
        tokio::select! {
            _ = timeout(PROMISED, self.child.wait()) => {}
            _ = signals.next() => {}
        }
        let _ = self.child.kill().await;
        // Its last words are in the file by now.
        sleep(GLANCE * 2).await;
        self.follower.abort();
    }
}
