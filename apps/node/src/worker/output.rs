//! The output of a worker process.
//!
//! The output is always read, because a full pipe blocks the process. A process that writes too much waits, because the
//! work of the reader does not count towards its limits. The output is logged at debug level. The last lines are kept,
//! because they contain the error when a process fails to start.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;
use tokio::sync::Mutex as AsyncMutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::text::one_line;

/// Longer lines are truncated.
const MAX_LINE_BYTES: usize = 2048;
const MAX_LINES: usize = 16;
const MAX_MESSAGE_CHARS: usize = 500;

const CHUNK_BYTES: usize = 8 << 10;
/// The output that is read from a pipe within a second. It is more than most processes write at once, because the
/// watchdog stops a process that waits too long.
const MAX_BYTES_PER_SECOND: usize = 4 << 20;
/// A line counts as this number of bytes more, because short lines take longer to process.
const LINE_COST_BYTES: usize = 64;

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

async fn read(mut pipe: impl AsyncRead + Unpin, project: String, errors: Option<Arc<Errors>>) {
    const SECOND: Duration = Duration::from_secs(1);
    let (mut chunk, mut line) = (Vec::<u8>::with_capacity(CHUNK_BYTES), Vec::<u8>::new());
    let (mut began, mut cost) = (Instant::now(), 0);
    while let Ok(1..) = pipe.read_buf(&mut chunk).await {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            cost += part.len() + LINE_COST_BYTES;
            let end = part.strip_suffix(b"\n");
            line.extend(end.unwrap_or(part).iter().take(MAX_LINE_BYTES - line.len()));
            if end.is_some() {
                process_line(&line, &project, errors.as_deref());
                line.clear();
            }
        }
        chunk.clear();
        if cost > MAX_BYTES_PER_SECOND {
            sleep_until(began + SECOND).await;
        }
        if began.elapsed() >= SECOND {
            (began, cost) = (Instant::now(), 0);
        }
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
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::time::timeout;

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
    async fn lines_are_kept_without_their_newline_and_truncated() {
        let errors = Arc::<Errors>::default();
        let long = "x".repeat(3 * MAX_LINE_BYTES);
        let output = format!("first\n\n{long}\nlast");
        read(output.as_bytes(), "shop".to_owned(), Some(Arc::clone(&errors))).await;
        assert_eq!(*errors.last_lines.lock().unwrap(), ["first", "", &long[..MAX_LINE_BYTES], "last"]);
    }

    #[tokio::test(start_paused = true)]
    async fn process_that_writes_too_much_waits_until_the_second_is_over() {
        for (chunk, max) in [([b'x'; CHUNK_BYTES], 2 * MAX_BYTES_PER_SECOND), ([b'\n'; CHUNK_BYTES], 128 << 10)] {
            let (mut process, pipe) = duplex(CHUNK_BYTES);
            let errors = Arc::<Errors>::default();
            let reader = tokio::spawn(read(pipe, "shop".to_owned(), Some(Arc::clone(&errors))));
            let mut written = 0;
            while timeout(Duration::from_millis(500), process.write_all(&chunk)).await.is_ok() {
                written += CHUNK_BYTES;
                assert!(written < max, "{written} bytes");
            }
            assert!(written > max / 4, "{written} bytes");
            process.write_all(b"\nlast").await.unwrap();
            drop(process);
            reader.await.unwrap();
            assert_eq!(errors.last_lines.lock().unwrap().back().unwrap(), "last");
        }
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
