//! The output of a worker process.
//!
//! The output is always read, because a full pipe would block the process. It is logged at debug level. The last lines
//! are kept, because they contain the error when a process fails to start.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Child;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;

use crate::text::one_line;

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 2048;
const MAX_LINES: usize = 16;
const MAX_MESSAGE_CHARS: usize = 500;

/// The prefix of errors that `svc-node` writes before it executes `workerd`.
const LAUNCH_ERROR: &str = "svc-node: ";

/// The last lines of a process's standard error.
pub struct Output {
    errors: Arc<Errors>,
    reader: AsyncMutex<Option<JoinHandle<()>>>,
}

/// The standard error of the process.
#[derive(Default)]
struct Errors {
    last_lines: Mutex<VecDeque<String>>,
    /// Whether the process is the worker and no longer `svc-node`: it has responded, or the launch error was logged.
    is_launched: AtomicBool,
}

impl Output {
    /// Reads the output of the child process until it exits.
    pub fn follow(child: &mut Child, project: &str) -> Self {
        let errors = Arc::<Errors>::default();
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, project.to_owned(), None));
        }
        let kept = Some(Arc::clone(&errors));
        let reader = child.stderr.take().map(|stderr| tokio::spawn(read(stderr, project.to_owned(), kept)));
        Self { errors, reader: AsyncMutex::new(reader) }
    }

    /// Records that the process has responded, so that its later output contains no launch error.
    pub fn set_launched(&self) {
        self.errors.is_launched.store(true, Ordering::Relaxed);
    }

    /// Returns the last lines, as a message for the project's members. Waits until the process has closed its standard
    /// error.
    pub async fn error_message(&self) -> String {
        let mut reader = self.reader.lock().await;
        if let Some(running) = reader.as_mut() {
            // If the reader panicked, the lines up to then are the message.
            let _ = running.await;
            *reader = None;
        }
        message(self.errors.last_lines.lock().unwrap_or_else(PoisonError::into_inner).iter())
    }
}

impl Errors {
    /// Returns whether the line is the launch error of `svc-node`. Returns true at most once, because worker code can
    /// write the same prefix.
    fn is_launch_error(&self, line: &str) -> bool {
        line.starts_with(LAUNCH_ERROR) && !self.is_launched.swap(true, Ordering::Relaxed)
    }

    fn keep(&self, line: String) {
        let mut lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(line);
    }
}

async fn read(pipe: impl AsyncRead + Unpin, project: String, errors: Option<Arc<Errors>>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(byte) = pipe.read_u8().await {
        if byte != b'\n' {
            if line.len() < MAX_LINE_BYTES {
                line.push(byte);
            }
            continue;
        }
        process_line(&line, &project, errors.as_deref());
        line.clear();
    }
    // The last line may have no newline.
    if !line.is_empty() {
        process_line(&line, &project, errors.as_deref());
    }
}

fn process_line(line: &[u8], project: &str, errors: Option<&Errors>) {
    let text = String::from_utf8_lossy(line).into_owned();
    if errors.is_some_and(|errors| errors.is_launch_error(&text)) {
        tracing::error!(project, error = text, "failed to start a worker");
    } else {
        tracing::debug!(project, line = text, "worker output");
    }
    if let Some(errors) = errors {
        errors.keep(text);
    }
}

/// Joins the lines, except those about `workerd` and the node.
fn message<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    const NOISE: [&str; 7] = [
        LAUNCH_ERROR,
        "Unable to find and open the program executable",
        "stack:",
        "*** Received signal",
        "note:",
        // V8's flags differ from those with which workerd compiled its own scripts.
        "workerd/api/per-isolate-bootstrap",
        // Follows the error of a main module that does not start.
        "Socket \"email\" refers to",
    ];
    let lines = lines.filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise)));
    let lines = lines.map(|line| line.strip_prefix("service worker: ").unwrap_or(line).trim());
    let text = lines.filter(|line| !line.contains("/proc/self/")).collect::<Vec<_>>().join("; ");
    one_line(&text, MAX_MESSAGE_CHARS)
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
            "/proc/self/fd/9: error",
        ]
        .map(str::to_owned);
        assert_eq!(message(lines.iter()), "Uncaught SyntaxError: Unexpected [0m end of input; at index.js:2");
        assert_eq!(message(["ü".repeat(2000)].iter()).chars().count(), 500);
    }

    #[tokio::test]
    async fn last_line_without_newline_is_kept() {
        let errors = Arc::<Errors>::default();
        read(&b"first\nlast"[..], "shop".to_owned(), Some(Arc::clone(&errors))).await;
        assert_eq!(*errors.last_lines.lock().unwrap(), ["first", "last"]);
    }

    #[test]
    fn launch_error_is_recognized_once_and_not_after_the_launch() {
        let errors = Errors::default();
        assert!(!errors.is_launch_error("worker output"));
        assert!(errors.is_launch_error("svc-node: no such file"));
        assert!(!errors.is_launch_error("svc-node: written by the worker"));

        let launched = Output { errors: Arc::default(), reader: AsyncMutex::default() };
        launched.set_launched();
        assert!(!launched.errors.is_launch_error("svc-node: written by the worker"));
    }
}
