//! The output of a worker process.
//!
//! The output is always read, because a full pipe would block the process. It is logged at debug level. The last lines
//! are kept, because they contain the error when a process fails to start.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 2048;
const MAX_LINES: usize = 8;
const MAX_MESSAGE_CHARS: usize = 500;

/// The prefix of errors that `svc-node` writes before it executes `workerd`.
const LAUNCH_ERROR: &str = "svc-node: ";

/// The last lines of a process's standard error.
pub struct Output {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Output {
    /// Reads the output of the child process until it exits.
    pub fn follow(child: &mut Child, project: &str) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, project.to_owned(), None));
        }
        let kept = Some(Arc::clone(&lines));
        let reader = child.stderr.take().map(|stderr| tokio::spawn(read(stderr, project.to_owned(), kept)));
        Self { lines, reader: Mutex::new(reader) }
    }

    /// The last lines, as a message for the project's members. Waits until the process has exited.
    pub async fn error_message(&self) -> String {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            let _ = reader.await;
        }
        message(self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter())
    }
}

async fn read(pipe: impl AsyncRead + Unpin, project: String, kept: Option<Arc<Mutex<VecDeque<String>>>>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(byte) = pipe.read_u8().await {
        if byte != b'\n' {
            if line.len() < MAX_LINE_BYTES {
                line.push(byte);
            }
            continue;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        line.clear();
        if text.starts_with(LAUNCH_ERROR) {
            tracing::error!(project, error = text, "failed to start a worker");
        } else {
            tracing::debug!(project, line = text, "worker output");
        }
        if let Some(kept) = &kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == MAX_LINES {
                kept.pop_front();
            }
            kept.push_back(text);
        }
    }
}

/// Joins the lines, without those about `workerd` and the node.
fn message<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    const NOISE: [&str; 5] =
        [LAUNCH_ERROR, "Unable to find and open the program executable", "stack:", "*** Received signal", "note:"];
    let lines = lines.filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise)));
    let lines = lines.map(|line| line.strip_prefix("service worker: ").unwrap_or(line).trim());
    let text = lines.filter(|line| !line.contains("/proc/self/")).collect::<Vec<_>>().join("; ");
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(MAX_MESSAGE_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_about_the_code_and_bounded() {
        let lines = [
            "Unable to find and open the program executable, so unable to determine",
            "service worker: Uncaught SyntaxError: Unexpected\u{1b}[0m end of input",
            "  at index.js:2",
            "stack: /proc/self/fd/8@2b5edc0",
            "/proc/self/fd/9/config.capnp:3: error",
        ]
        .map(str::to_owned);
        assert_eq!(message(lines.iter()), "Uncaught SyntaxError: Unexpected [0m end of input; at index.js:2");
        assert_eq!(message(["ü".repeat(2000)].iter()).chars().count(), 500);
    }
}
