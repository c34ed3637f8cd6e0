//! Passes data between a client and a git process.

use anyhow::{Context as _, bail, ensure};
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Output;
use crate::commands::CommandReader;
use crate::journal::{PushGuard, StaleDeletion};
use crate::progress::Progress;
use crate::storage::{PushStorage, StorageRefusal};

const CHUNK_BYTES: usize = 64 * 1024;
/// The maximum number of bytes of git's error output that are kept.
const MAX_ERROR_BYTES: usize = 8 * 1024;

/// Passes the input of a client to git.
pub(super) struct Feeder<'a> {
    /// The checks of a push. `None` for other programs, and after a refusal.
    pub(super) checks: Option<PushChecks<'a>>,
    /// `None` after a refusal, and when git no longer reads its input.
    pub(super) stdin: Option<ChildStdin>,
    /// The number of bytes so far.
    pub(super) total: u64,
    pub(super) max_input: u64,
    pub(super) skips_input: bool,
    /// The reason why the rest of the input is skipped.
    pub(super) refusal: Option<anyhow::Error>,
}

impl Feeder<'_> {
    /// Passes a part of the input to git, unless the node refuses it.
    pub(super) async fn feed(&mut self, chunk: &[u8], output: &mpsc::Sender<Output>) -> anyhow::Result<()> {
        self.total += u64::try_from(chunk.len())?;
        ensure!(self.total <= self.max_input, "the client sent more than {} bytes", self.max_input);
        if let Some(checks) = &mut self.checks
            && let Err(error) = checks.check(chunk, self.total).await
        {
            // The client may have disconnected.
            let _ = output.send(Output::Refusal(error.to_string())).await;
            if !self.skips_input {
                return Err(error);
            }
            (self.checks, self.stdin, self.refusal) = (None, None, Some(error));
        }
        if let Some(stdin) = &mut self.stdin
            && stdin.write_all(chunk).await.is_err()
        {
            // git no longer reads its input.
            self.stdin = None;
        }
        Ok(())
    }
}

/// The checks of a push while its input arrives.
pub(super) struct PushChecks<'a> {
    pub(super) push: &'a PushGuard,
    pub(super) storage: &'a mut PushStorage,
    pub(super) commands: CommandReader,
}

impl PushChecks<'_> {
    /// Checks a part of the input. `total` is the number of bytes with it. Returns an error for the client if the push
    /// is refused.
    async fn check(&mut self, input: &[u8], total: u64) -> anyhow::Result<()> {
        let checked = match self.storage.check(total) {
            Ok(()) => {
                self.commands.read(input)?;
                self.push.register(self.commands.take_updates()).await
            }
            refused => refused,
        };
        match checked {
            Err(error) if !error.is::<StaleDeletion>() && !error.is::<StorageRefusal>() => {
                tracing::error!(error = format!("{error:#}"), "cannot check a push");
                bail!("the git node cannot check the push")
            }
            checked => checked,
        }
    }
}

/// Copies git's output and its error output to the client.
pub(super) async fn forward_output(
    mut stdout: ChildStdout,
    stderr: Option<ChildStderr>,
    output: &mpsc::Sender<Output>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let errors = async {
        match stderr {
            Some(mut stderr) => forward_errors(&mut stderr, output).await,
            None => Ok(()),
        }
    };
    let data = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(CHUNK_BYTES);
            if stdout.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
            progress.restart(Instant::now());
            let length = buffer.len();
            output.send(Output::Data(buffer.split().freeze())).await.context("the client disconnected")?;
            progress.count(length, Instant::now());
        }
    };
    tokio::try_join!(data, errors).map(drop)
}

/// Copies the error output to the client, up to a limit.
async fn forward_errors(stderr: &mut (impl AsyncRead + Unpin), output: &mpsc::Sender<Output>) -> anyhow::Result<()> {
    let (mut buffer, mut total) = (BytesMut::new(), 0);
    loop {
        buffer.reserve(CHUNK_BYTES);
        let length = stderr.read_buf(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        let text = buffer.split().freeze();
        total += length;
        if total <= MAX_ERROR_BYTES {
            output.send(Output::Error(text)).await.context("the client disconnected")?;
        }
    }
}
