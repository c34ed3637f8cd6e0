//! A server process: a child of this xtask, or one that a killed xtask left running.

use std::fs;
use std::net::SocketAddr;
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
    /// The address and the port in the server's file `postmaster.pid`.
    address: (String, u16),
    /// `None` for an adopted server.
    child: Option<Child>,
}

impl Server {
    /// Wraps a child process, which may not be ready yet.
    pub fn child(child: Child, data: &Path) -> Self {
        let (pid, address) = (Pid::from_child(&child), (String::new(), 0));
        Self { pid, data: data.to_owned(), address, child: Some(child) }
    }

    /// Finds the ready server of this data folder. The process id in its file may be reused by another process, so the
    /// socket must also accept a connection.
    pub fn find(data: &Path, sockets: &Path) -> Option<Self> {
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = file.lines().map(str::trim).collect();
        let [pid, _, _, port, _, address, _, "ready", ..] = *lines else { return None };
        let (pid, port) = (Pid::from_raw(pid.parse().ok()?)?, port.parse().ok()?);
        UnixStream::connect(location::socket(sockets, port)).ok()?;
        Some(Self { pid, data: data.to_owned(), address: (address.to_owned(), port), child: None })
    }

    /// Returns whether the found server listens on this address and port; `None` stands for the socket only.
    pub fn listens_on(&self, listen: Option<SocketAddr>) -> bool {
        let expected = listen.map_or((String::new(), location::PORT), |it| (it.ip().to_string(), it.port()));
        self.address == expected
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
        // The server may have ended.
        let _ = kill_process(self.pid, signal);
        while self.is_running() && start.elapsed() < STOP_TIMEOUT {
            sleep(Duration::from_millis(10));
        }
    }
}
