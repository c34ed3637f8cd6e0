//! One server process: a child of this xtask, or one that a killed xtask left running.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::place;

pub struct Server {
    pid: Pid,
    data: PathBuf,
    /// `None`: adopted.
    child: Option<Child>,
}

impl Server {
    /// A child, which may not be ready yet.
    pub fn child(child: Child, data: &Path) -> Self {
        Self { pid: Pid::from_child(&child), data: data.to_owned(), child: Some(child) }
    }

    /// The one that serves this data and says it is ready. A process id in a file may be anybody's by now: it counts
    /// only while somebody answers at the socket.
    pub fn find(data: &Path, sockets: &Path) -> Option<Self> {
        let file = fs::read_to_string(data.join("postmaster.pid")).ok()?;
        let mut lines = file.lines();
        let pid = Pid::from_raw(lines.next()?.trim().parse().ok()?)?;
        let ready = lines.nth(6)?.trim() == "ready" && UnixStream::connect(place::socket(sockets)).is_ok();
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
            // Its number alone would count a zombie that nobody has reaped yet.
            None => test_kill_process(self.pid).is_ok() && self.data.join("postmaster.pid").exists(),
        }
    }

    /// Asks it to end and waits until it has.
    pub fn stop(&mut self, signal: Signal) {
        const AT_MOST: Duration = Duration::from_secs(60);
        let start = Instant::now();
        let _ = kill_process(self.pid, signal);
        while self.is_running() && start.elapsed() < AT_MOST {
            sleep(Duration::from_millis(10));
        }
    }
}
