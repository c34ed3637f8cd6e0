//! The server under test, as a process that can be killed and restarted.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use xtask::probe;
use xtask::process::{ExecChild, pid};
use xtask::workspace;

use crate::bench::machine::IS_RELEASE;
use crate::bench::server::settings;
use crate::usage;
use testkit::reserved_address;

pub struct Service {
    pub api: SocketAddr,
    settings: Vec<(&'static str, String)>,
    log: PathBuf,
    child: Child,
}

impl Service {
    /// Starts the server and waits until it is ready. `more` contains additional settings.
    pub async fn start(folder: &Path, database_url: String, more: &[(&'static str, String)]) -> Result<Self> {
        let (api, internal) = (reserved_address(), reserved_address());
        let mut settings = settings(folder, database_url, api, internal)?;
        settings.extend_from_slice(more);
        let log = folder.join("server.log");
        File::create(&log)?;
        let child = spawn(&settings, &log)?;
        let service = Self { api, settings, log, child };
        probe::wait_until_ok(api, "/readyz").await?;
        Ok(service)
    }

    /// Returns the base URL of the public API.
    pub fn base(&self) -> String {
        format!("http://{}", self.api)
    }

    /// Sends SIGKILL.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Starts the server again. Returns the time until it was ready.
    pub async fn restart(&mut self) -> Result<Duration> {
        let start = Instant::now();
        self.child = spawn(&self.settings, &self.log)?;
        probe::wait_until_ok(self.api, "/readyz").await?;
        Ok(start.elapsed())
    }

    /// Sends SIGTERM. Returns the exit status and the duration of the shutdown.
    pub async fn terminate(&mut self) -> Result<(ExitStatus, Duration)> {
        let start = Instant::now();
        kill_process(self.process()?, Signal::TERM)?;
        Ok((self.child.wait().await?, start.elapsed()))
    }

    /// Kills the server if it is running.
    pub async fn stop(mut self) {
        let _ = self.child.kill().await;
    }

    /// Returns the current and the peak resident memory in MB.
    pub fn memory(&self) -> Result<(f64, f64)> {
        usage::memory(self.child.id().context("the server has exited")?)
    }

    /// Returns the log lines that report panics or internal errors.
    pub fn log_errors(&self) -> Result<Vec<String>> {
        log_errors(&self.log)
    }

    fn process(&self) -> Result<Pid> {
        pid(&self.child).context("the server has exited")
    }
}

/// Returns the lines of a log that report panics or internal errors.
pub fn log_errors(log: &Path) -> Result<Vec<String>> {
    let log = fs::read_to_string(log)?;
    let is_error = |line: &&str| line.contains("panicked") || line.contains("\"code\":\"internal\"");
    Ok(log.lines().filter(is_error).map(str::to_owned).collect())
}

fn spawn(settings: &[(&'static str, String)], log: &Path) -> Result<Child> {
    let program = workspace::program_folder(IS_RELEASE)?.join("svc-server");
    let output = OpenOptions::new().append(true).open(log)?;
    let mut command = ExecChild::wrap(&program)?;
    command.env_clear().envs(settings.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    Ok(tokio::process::Command::from(command).kill_on_drop(true).spawn()?)
}
