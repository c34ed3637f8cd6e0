//! Commands that the node runs for itself.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::time::timeout;

use super::Process;

/// The maximum output of a command, in bytes.
const MAX_OUTPUT_BYTES: u64 = 64 << 20;
/// The text that a command prints for the user is cut after this many bytes.
const MAX_ERROR_BYTES: u64 = 4096;

/// A command that has ended.
struct Ended {
    code: u8,
    output: Vec<u8>,
    /// The text that git printed for the user.
    errors: String,
}

impl Ended {
    fn failure(&self) -> anyhow::Error {
        anyhow!("git ended with the code {}: {}", self.code, self.errors.trim())
    }
}

/// Runs a command of the node, and kills it after `limit`. Returns its output. The command must succeed.
pub async fn output(command: Command, limit: Duration) -> anyhow::Result<Vec<u8>> {
    let ended = run(command, limit).await?;
    if ended.code == 0 { Ok(ended.output) } else { Err(ended.failure()) }
}

/// Runs a command that decides a question: it ends with the code 0 or 1. Kills it after `limit`.
pub async fn decide(command: Command, limit: Duration) -> anyhow::Result<bool> {
    let ended = run(command, limit).await?;
    match ended.code {
        0 => Ok(true),
        1 => Ok(false),
        _ => Err(ended.failure()),
    }
}

async fn run(mut command: Command, limit: Duration) -> anyhow::Result<Ended> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(command)?;
    let stdout = process.stdout.take().context("git has an output")?;
    let mut stderr = process.stderr.take().context("git has an output for errors")?;
    let read_output = async {
        let mut output = Vec::new();
        stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut output).await?;
        anyhow::Ok(output)
    };
    let read_errors = async {
        let mut errors = Vec::new();
        (&mut stderr).take(MAX_ERROR_BYTES).read_to_end(&mut errors).await?;
        // git must be able to print the rest.
        copy(&mut stderr, &mut sink()).await?;
        anyhow::Ok(String::from_utf8_lossy(&errors).into_owned())
    };
    let ended = timeout(limit, async { tokio::try_join!(process.wait(), read_output, read_errors) }).await;
    match ended {
        Ok(ended) => {
            let (code, output, errors) = ended?;
            Ok(Ended { code, output, errors })
        }
        Err(_) => {
            process.end().await;
            bail!("git took longer than {} seconds", limit.as_secs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::Git;

    #[tokio::test]
    async fn error_of_a_failed_command_contains_the_text_of_git() {
        const LIMIT: Duration = Duration::from_secs(60);
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("home")).unwrap();
        let git = Git::new(folder.path()).unwrap();
        let command = |argument: &str| {
            let mut command = git.maintenance(None);
            command.args(["version", argument]);
            command
        };
        let error = output(command("--no-such-option"), LIMIT).await.unwrap_err().to_string();
        assert!(error.starts_with("git ended with the code 129: error: unknown option `no-such-option'"), "{error}");
        let error = decide(command("--no-such-option"), LIMIT).await.unwrap_err().to_string();
        assert!(error.contains("unknown option"), "{error}");
    }
}
