//! A server process: a child of this xtask, or one that a killed xtask left running.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::location;

pub struct Server {
    pid: Pid,
    data: PathBuf,
    /// `None` for an adopted server.
    child: Option<Child>,
}

impl Server {
    /// Wraps a child process, which may not be ready yet.
    pub fn child(child: Child, data: &Path) -> Self {
        Self { pid: Pid::from_child(&child), data: data.to_owned(), child: Some(child) }
    }

    /// Finds the ready server of this data folder. The process id in its file may be reused by another process, so the
    /// socket must also accept a connection.
    pub fn find(data: &Path, sockets: &Path) -> Option<Self> {
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let mut lines = file.lines();
        let pid = Pid::from_raw(lines.next()?.trim().parse().ok()?)?;
        let ready = lines.nth(6)?.trim() == "ready" && UnixStream::connect(location::socket(sockets)).is_ok();
        ready.then(|| Self { pid, data: data.to_owned(), child: None })
    }

    pub fn is_adopted(&self) -> bool {
        self.child.is_none()
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.pid == other.pid
    }

    pub fn is_running(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(None)),
            // A zombie process still has its id, so the pid file is checked too.
            None => test_kill_process(self.pid).is_ok() && self.data.join("postmaster.pid").exists(),
        }
    }

    /// Sends a signal and waits until the server has ended.
    pub fn stop(&mut self, signal: Signal) {
        const STOP_TIMEOUT: Duration = Duration::from_secs(60);
        let start = Instant::now();
        let _ = kill_process(self.pid, signal);
        while self.is_running() && start.elapsed() < STOP_TIMEOUT {
            sleep(Duration::from_millis(10));
        }
    }
}
