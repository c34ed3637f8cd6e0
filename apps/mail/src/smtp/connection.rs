//! The bytes of a connection: lines in, replies out.

use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;

use super::reply::Reply;
use crate::metrics::Metrics;

/// The limit of a command line with its line break. RFC 5321 section 4.5.3.1.4 requires 512, and extensions add to it.
const MAX_LINE: usize = 2048;
/// The number of bytes per read.
const COMMAND_BLOCK: usize = 4 << 10;
const DATA_BLOCK: usize = 32 << 10;
/// The maximum number of bytes, and the maximum time, that the server reads before it closes a connection, so that the
/// client can read the last reply.
const MAX_LINGER: usize = 1 << 20;
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection, before or after STARTTLS.
pub struct Connection {
    /// `None` after a failed handshake.
    transport: Option<Box<dyn Transport>>,
    input: BytesMut,
    /// Replies that are not sent yet. The replies to pipelined commands are sent together.
    output: Vec<u8>,
    write_timeout: Duration,
    metrics: Metrics,
}

/// A line that the client sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    /// A line that ended with CRLF, without this line break.
    Command(Vec<u8>),
    /// Longer than [`MAX_LINE`].
    TooLong,
    /// A line that ended with another line break than CRLF.
    WrongBreak,
}

/// The reason why a connection is unusable.
#[derive(Debug)]
pub enum Lost {
    Closed,
    Timeout,
}

impl From<io::Error> for Lost {
    fn from(_: io::Error) -> Self {
        Self::Closed
    }
}

impl Connection {
    pub fn new(stream: TcpStream, write_timeout: Duration, metrics: Metrics) -> Self {
        let (input, output) = (BytesMut::new(), Vec::new());
        Self { transport: Some(Box::new(stream)), input, output, write_timeout, metrics }
    }

    /// Queues a reply. It is sent before the next read.
    pub fn reply(&mut self, reply: &Reply) {
        self.metrics.reply(reply.code);
        self.output.extend(reply.to_string().into_bytes());
    }

    /// Returns whether there are received bytes that were not processed yet.
    pub fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// Reads a line.
    pub async fn read_line(&mut self, deadline: Instant) -> Result<Line, Lost> {
        let (mut searched, mut too_long) = (0, false);
        loop {
            let found = self.input.iter().skip(searched).position(|byte| *byte == b'\n');
            if let Some(position) = found {
                let line = self.input.split_to(searched + position + 1);
                let command = line.strip_suffix(b"\r\n").filter(|command| !command.contains(&b'\r'));
                return Ok(match command {
                    _ if too_long || line.len() > MAX_LINE => Line::TooLong,
                    Some(command) => Line::Command(command.to_vec()),
                    None => Line::WrongBreak,
                });
            }
            searched = self.input.len();
            if searched > MAX_LINE {
                too_long = true;
                searched = 0;
                self.input.clear();
            }
            self.fill(COMMAND_BLOCK, deadline).await?;
        }
    }

    /// Waits for the next bytes of a mail, unless the buffer already contains some.
    pub async fn wait_for_data(&mut self, deadline: Instant) -> Result<(), Lost> {
        if self.input.is_empty() { self.fill(DATA_BLOCK, deadline).await } else { Ok(()) }
    }

    /// Returns the buffered bytes.
    pub fn data(&self) -> &[u8] {
        &self.input
    }

    /// Removes received bytes.
    pub fn consume(&mut self, length: usize) {
        self.input.advance(length.min(self.input.len()));
    }

    async fn fill(&mut self, block: usize, deadline: Instant) -> Result<(), Lost> {
        self.flush().await?;
        let Self { transport: Some(transport), input, .. } = self else { return Err(Lost::Closed) };
        input.reserve(block);
        match timeout_at(deadline, transport.read_buf(input)).await {
            Ok(Ok(0)) => Err(Lost::Closed),
            Ok(read) => read.map(|_| ()).map_err(Lost::from),
            Err(_) => Err(Lost::Timeout),
        }
    }

    /// Sends the replies.
    pub async fn flush(&mut self) -> Result<(), Lost> {
        let Self { transport: Some(transport), output, .. } = self else { return Err(Lost::Closed) };
        if output.is_empty() {
            return Ok(());
        }
        let write = async {
            transport.write_all(output).await?;
            transport.flush().await
        };
        match timeout(self.write_timeout, write).await {
            Ok(written) => written?,
            Err(_) => return Err(Lost::Timeout),
        }
        output.clear();
        Ok(())
    }

    /// Sends the queued replies, then starts TLS. Discards the bytes that arrived before the handshake, because they
    /// were not encrypted.
    pub async fn start_tls(&mut self, acceptor: &TlsAcceptor, limit: Duration) -> Result<(), Lost> {
        self.flush().await?;
        self.input.clear();
        let transport = self.transport.take().ok_or(Lost::Closed)?;
        match timeout(limit, acceptor.accept(transport)).await {
            Ok(encrypted) => self.transport = Some(Box::new(encrypted?)),
            Err(_) => return Err(Lost::Timeout),
        }
        Ok(())
    }

    /// Sends the last replies and closes the connection. Then reads and discards the client's bytes for a short time.
    /// Otherwise, the kernel would reset the connection, and the client could lose the last reply.
    pub async fn close(mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let Some(mut transport) = self.transport else { return };
        let linger = async {
            transport.shutdown().await?;
            let (mut block, mut total) = (vec![0; COMMAND_BLOCK], 0);
            while total < MAX_LINGER {
                match transport.read(&mut block).await? {
                    0 => break,
                    length => total += length,
                }
            }
            io::Result::Ok(())
        };
        // The client may be slow or gone. The connection is closed in any case.
        let _ = timeout(LINGER_TIMEOUT, linger).await;
    }
}
