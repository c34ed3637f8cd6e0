//! The commands of clients.

use std::borrow::{BorrowMut, Cow};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use protocol::GitAccess;
use russh::server::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::GRACE;
use crate::archive;
use crate::exchange::{Credential, Exchange, Mode, Output, Service, is_refusal};
use crate::git::Program;
use crate::metrics::{Metrics, Transport};
use crate::path::RepositoryPath;

/// A client that does not read for this long is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(120);
/// The maximum length of a command, in bytes.
const MAX_COMMAND_BYTES: usize = 1024;
/// The maximum number of chunks of an output that are buffered for the client.
const BUFFERED_PARTS: usize = 4;
/// The exit code of a refused command, which is the one that git uses.
const REFUSED: u8 = 128;
const UNAVAILABLE: &str = "the service is not available; try again in a moment";

/// A command on a channel.
pub(super) struct Command {
    pub(super) service: Service,
    pub(super) metrics: Metrics,
    pub(super) fingerprint: String,
    pub(super) address: IpAddr,
    pub(super) program: Program,
    /// The path, as the client sent it.
    pub(super) path: String,
    pub(super) protocol: Option<String>,
}

impl Command {
    /// Runs the command. Returns its exit code.
    pub(super) async fn run(self, mut reader: ChannelReadHalf, writer: &ChannelWriteHalf<Msg>) -> u8 {
        let (exchange, request) = match self.start(&mut reader).await {
            Ok(started) => started,
            Err(reason) => return refuse(reader, writer, &reason).await,
        };
        // The exchange drops the reader with the input. While a reader that does not read exists, russh may serve no
        // channel of the connection.
        let input = stream::iter(request.map(Ok)).chain(read_input(reader));
        let (sender, receiver) = mpsc::channel(BUFFERED_PARTS);
        let started = Instant::now();
        let (result, ()) = tokio::join!(exchange.run(input, sender, false), send_output(receiver, writer));
        let (outcome, code) = match result {
            Ok(0) => ("success", 0),
            Ok(code) => ("failure", code),
            Err(error) => {
                let program = self.program.name();
                tracing::debug!(error = format!("{error:#}"), program, "an exchange was ended");
                ("ended", REFUSED)
            }
        };
        self.metrics.exchange(Transport::Ssh, self.program.name(), outcome, started.elapsed());
        code
    }

    /// Starts git. Returns the exchange and the beginning of its input, or the reason why the node refuses the command.
    async fn start(&self, reader: &mut ChannelReadHalf) -> Result<(Exchange, Option<Bytes>), Cow<'static, str>> {
        let credential = Some(Credential::SshKey(self.fingerprint.clone()));
        let path = RepositoryPath::parse(&self.path);
        let access =
            self.service.authorize((Transport::Ssh, self.address), credential, path, self.program.writes()).await;
        let grant = match access {
            Ok(GitAccess::Allowed(grant)) => grant,
            Ok(GitAccess::Unauthenticated) => return Err("your key is not registered any more".into()),
            Ok(GitAccess::Forbidden(message)) => return Err(message.into()),
            Ok(GitAccess::NotFound) => return Err("repository not found".into()),
            Err(error) if is_refusal(&error) => return Err(error.to_string().into()),
            Err(_) => return Err(UNAVAILABLE.into()),
        };
        let request = match self.program {
            Program::UploadArchive => {
                let mut input = Box::pin(read_input(reader));
                let request = timeout(GRACE, archive::read_request(&mut input)).await;
                let request = request.map_err(|_| "the client did not send its request in time")?;
                Some(request.ok_or("only --format, --prefix, --mtime, --list, --verbose and a level are allowed")?)
            }
            _ => None,
        };
        let mode = Mode { program: self.program, arguments: &[], protocol: self.protocol.as_deref() };
        let exchange = self.service.start(&grant, self.address, mode).await.map_err(|error| {
            if is_refusal(&error) {
                return error.to_string().into();
            }
            let error = format!("{error:#}");
            tracing::error!(error, repository = grant.repository, "cannot serve a repository");
            Cow::from(UNAVAILABLE)
        })?;
        Ok((exchange, request))
    }
}

/// Returns the data that the client sends, up to its end. The stream contains an error if the channel is closed before.
fn read_input(reader: impl BorrowMut<ChannelReadHalf>) -> impl Stream<Item = io::Result<Bytes>> {
    stream::unfold(reader, async |mut reader| {
        loop {
            match reader.borrow_mut().wait().await {
                Some(ChannelMsg::Data { data }) => return Some((Ok(data), reader)),
                Some(ChannelMsg::Eof) => return None,
                Some(ChannelMsg::Close) | None => {
                    return Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), reader));
                }
                Some(_) => {}
            }
        }
    })
}

/// Sends the output of an exchange to the client, until one of them ends. Dropping the receiver ends the exchange.
async fn send_output(mut outputs: mpsc::Receiver<Output>, writer: &ChannelWriteHalf<Msg>) {
    while let Some(output) = outputs.recv().await {
        let send = async {
            match output {
                Output::Data(data) => writer.data_bytes(data).await,
                Output::Error(text) => writer.extended_data_bytes(1, text).await,
                Output::Refusal(reason) => writer.extended_data_bytes(1, format!("svc: {reason}\n").into_bytes()).await,
                // The exit code is the client's error.
                Output::Abort => Ok(()),
            }
        };
        // The send waits until the client can receive more data. It does not detect the end of the connection, so it
        // has a timeout.
        if !timeout(WRITE_TIMEOUT, send).await.is_ok_and(|sent| sent.is_ok()) {
            // The client disconnected.
            break;
        }
    }
}

/// Sends the reason why the node refuses a command. Returns the exit code of the command.
pub(super) async fn refuse(reader: ChannelReadHalf, writer: &ChannelWriteHalf<Msg>, reason: &str) -> u8 {
    let send = writer.extended_data_bytes(1, Bytes::from(format!("svc: {reason}\n")));
    // The send waits until the client can receive data. It does not detect the end of the channel.
    tokio::select! {
        _ = timeout(GRACE, send) => {}
        () = wait_until_closed(reader) => {}
    }
    REFUSED
}

/// Waits until the client closes the channel or disconnects. Discards the data that the client sends.
async fn wait_until_closed(mut reader: ChannelReadHalf) {
    while !matches!(reader.wait().await, Some(ChannelMsg::Close) | None) {}
}

/// Sends the exit code of a command, and closes its channel.
pub(super) async fn end(writer: &ChannelWriteHalf<Msg>, code: u8) -> Result<(), russh::Error> {
    let send = async {
        writer.exit_status(u32::from(code)).await?;
        writer.eof().await?;
        writer.close().await
    };
    timeout(WRITE_TIMEOUT, send).await?
}

/// Parses a command of a git client, such as `git-upload-pack '/ada/site/app.git'`. No shell is involved: only the
/// quotes that git writes are parsed.
pub(super) fn parse(command: &[u8]) -> Option<(Program, String)> {
    let command = str::from_utf8(command).ok().filter(|command| command.len() <= MAX_COMMAND_BYTES)?;
    let (program, path) = match command.strip_prefix("git ") {
        // The form without a hyphen: `git upload-pack '…'`.
        Some(rest) => rest.split_once(' ').map(|(program, path)| (format!("git-{program}"), path))?,
        None => command.split_once(' ').map(|(program, path)| (program.to_owned(), path))?,
    };
    let path = path.trim();
    let path = path.strip_prefix('\'').and_then(|path| path.strip_suffix('\'')).unwrap_or(path);
    // Over HTTP, git itself removes a slash at the end of a URL.
    let path = path.strip_suffix('/').unwrap_or(path);
    Some((Program::named(&program)?, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_of_git_are_parsed() {
        let path = "/ada/site/app.git".to_owned();
        for command in [
            "git-upload-pack '/ada/site/app.git'",
            "git upload-pack '/ada/site/app.git'",
            "git-upload-pack /ada/site/app.git",
            "git-upload-pack '/ada/site/app.git/'",
        ] {
            assert_eq!(parse(command.as_bytes()), Some((Program::UploadPack, path.clone())), "{command}");
        }
        for command in ["ls", "git", "git-shell 'x'", "git-upload-pack", "sh -c 'git-upload-pack x'", ""] {
            assert_eq!(parse(command.as_bytes()), None, "{command}");
        }
        assert_eq!(parse(b"git-upload-pack '\xff'"), None);
    }
}
