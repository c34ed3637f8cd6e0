//! The program `svc-node`, with its log.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use testkit::WITHOUT_SYSTEM_CERTIFICATES;

/// A running `svc-node`. It is killed when dropped.
pub struct Program {
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    /// The program is killed after this number of log lines with this text.
    trap: Arc<Mutex<Option<(&'static str, usize)>>>,
}

impl Program {
    pub fn start(environment: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-node"));
        command.env_clear().envs([WITHOUT_SYSTEM_CERTIFICATES]).envs(environment).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (pid, output) = (Pid::from_child(&child), child.stdout.take().unwrap());
        let (log, trap) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None::<(&str, usize)>)));
        let (lines, armed) = (Arc::clone(&log), Arc::clone(&trap));
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some((text, left)) = &mut *armed.lock().unwrap()
                    && line.contains(*text)
                {
                    *left = left.saturating_sub(1);
                    if *left == 0 {
                        // The program may already have been killed.
                        let _ = kill_process(pid, Signal::KILL);
                    }
                }
                lines.lock().unwrap().push(line);
            }
        });
        Self { child, log, trap }
    }

    /// Kills the program as soon as it writes this text to its log for the `count`th time from now.
    pub fn kill_at(&self, text: &'static str, count: usize) {
        *self.trap.lock().unwrap() = Some((text, count));
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Kills the program and waits for its end.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
