//! What a worker's process writes.
//!
//! It is read always and as fast as it comes, for a pipe that is full would stop the process. It goes to the log at
//! debug, and its end is kept: when the process does not start, it says there why.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Child;
use tokio::task::JoinHandle;

/// A longer line is cut here.
const LINE: usize = 2048;
const LINES: usize = 8;
/// Of a message.
const CHARACTERS: usize = 500;

/// How a line begins that this program wrote before it became `workerd`.
const OURS: &str = "svc-node: ";

/// What a process wrote to its standard error.
pub struct Output {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Output {
    /// Reads what the child of that project writes until it ends.
    pub fn follow(child: &mut Child, project: &str) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(read(stdout, project.to_owned(), None));
        }
        let kept = Some(Arc::clone(&lines));
        let reader = child.stderr.take().map(|stderr| tokio::spawn(read(stderr, project.to_owned(), kept)));
        Self { lines, reader: Mutex::new(reader) }
    }

    /// The last lines, in words for the project's people. Of a process that has ended.
    pub async fn last_words(&self) -> String {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            let _ = reader.await;
        }
        words(self.lines.lock().unwrap_or_else(PoisonError::into_inner).iter())
    }
}

async fn read(pipe: impl AsyncRead + Unpin, project: String, kept: Option<Arc<Mutex<VecDeque<String>>>>) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    while let Ok(byte) = pipe.read_u8().await {
        if byte != b'\n' {
            if line.len() < LINE {
                line.push(byte);
            }
            continue;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        line.clear();
        if text.starts_with(OURS) {
            tracing::error!(project, error = text, "a worker cannot be started");
        } else {
            tracing::debug!(project, line = text, "worker");
        }
        if let Some(kept) = &kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == LINES {
                kept.pop_front();
            }
            kept.push_back(text);
        }
    }
}

/// The lines without what is about `workerd` and the node rather than about the code.
fn words<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    const NOISE: [&str; 5] =
        [OURS, "Unable to find and open the program executable", "stack:", "*** Received signal", "note:"];
    let told = lines.filter(|line| !NOISE.iter().any(|noise| line.starts_with(noise)));
    let told = told.map(|line| line.strip_prefix("service worker: ").unwrap_or(line).trim());
    let text = told.filter(|line| !line.contains("/proc/self/")).collect::<Vec<_>>().join("; ");
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(CHARACTERS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_about_the_code_and_bounded() {
        let lines = [
            "Unable to find and open the program executable, so unable to determine",
            "service worker: Uncaught SyntaxError: Unexpected\u{1b}[0m end of input",
            "  at index.js:2",
            "stack: /proc/self/fd/8@2b5edc0",
            "/proc/self/fd/9/config.capnp:3: error",
        ]
        .map(str::to_owned);
        assert_eq!(words(lines.iter()), "Uncaught SyntaxError: Unexpected [0m end of input; at index.js:2");
        assert_eq!(words(["ü".repeat(2000)].iter()).chars().count(), 500);
    }
}
