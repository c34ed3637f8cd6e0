//! A program of the platform that can be killed and restarted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use xtask::services::Services;
use xtask::{probe, workspace};

use crate::bench::machine::{IS_RELEASE, kill};

/// A running program of the platform. It has the same settings after a restart.
pub struct RunningProgram {
    /// The name among the services. The file has this name after `svc-`.
    name: &'static str,
    folder: PathBuf,
    settings: Vec<(&'static str, String)>,
    /// The address and the path of a request that returns 200 as soon as the program is ready.
    readiness: (SocketAddr, &'static str),
    pid: AtomicU32,
}

impl RunningProgram {
    /// Starts the program with these environment variables only, and waits until it is ready. Its log is in `folder`.
    pub async fn start(
        services: &mut Services,
        name: &'static str,
        folder: &Path,
        settings: Vec<(&'static str, String)>,
        readiness: (SocketAddr, &'static str),
    ) -> Result<Self> {
        let program = Self { name, folder: folder.to_owned(), settings, readiness, pid: AtomicU32::default() };
        program.start_process(services).await?;
        Ok(program)
    }

    async fn start_process(&self, services: &mut Services) -> Result<()> {
        let file = workspace::program_folder(IS_RELEASE)?.join(format!("svc-{}", self.name));
        let pid = services.start(self.name, &file, &self.folder, |it| {
            it.env_clear().envs(self.settings.iter().map(|(name, value)| (name, value)));
        })?;
        self.pid.store(pid, Ordering::SeqCst);
        let (address, path) = self.readiness;
        services.supervise(probe::wait_until_ok(address, path)).await
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::SeqCst)
    }

    /// Stops the program with SIGTERM.
    pub async fn stop(&self, services: &mut Services) {
        services.stop_program(self.name).await;
    }

    /// Kills the program with SIGKILL.
    pub async fn kill(&self, services: &mut Services) -> Result<()> {
        kill(self.pid())?;
        self.stop(services).await;
        Ok(())
    }

    /// Stops the program with SIGTERM if it is running, and starts it again. Returns the time from its start until it was
    /// ready.
    pub async fn restart(&self, services: &mut Services) -> Result<Duration> {
        self.stop(services).await;
        let start = Instant::now();
        self.start_process(services).await?;
        Ok(start.elapsed())
    }

    /// Kills the program with SIGKILL, and starts it again.
    pub async fn kill_and_restart(&self, services: &mut Services) -> Result<()> {
        self.kill(services).await?;
        self.restart(services).await.map(drop)
    }
}
