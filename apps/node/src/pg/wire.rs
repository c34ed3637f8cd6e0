//! The messages of a connection, with limits on those that the server sends.

use std::io;
use std::mem;

use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::FutureExt as _;
use postgres_protocol::message::backend::{self, Header, Message};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::SMALL_BYTES;
use super::error::{DatabaseError, Failure, ServerError, violation};
use super::socket::Socket;
use crate::memory::{OwnerMemory, Reservation};

/// The largest result of a call, as JSON.
pub const MAX_RESULT_BYTES: usize = 16 << 20;
/// The largest row. Postgres sends each byte of a `bytea` as two digits, which is more than its base64 in JSON.
const MAX_ROW_BYTES: usize = 2 * MAX_RESULT_BYTES;
/// The largest message other than a row. The description of 1,664 columns takes about 200 KiB.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// The part of an error that is read. It contains the code and the message, because they come first.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// The length of a message counts itself, but not the tag.
const LENGTH_BYTES: usize = 4;

/// A connection as a sequence of messages.
pub struct Wire {
    socket: Socket,
    received: BytesMut,
    /// The messages to send next.
    pub outgoing: BytesMut,
    /// The memory for large rows.
    pub memory: OwnerMemory,
    /// The memory of the last row.
    row: Option<Reservation>,
}

impl Wire {
    pub fn new(socket: Socket, memory: OwnerMemory) -> Self {
        Self { socket, received: BytesMut::new(), outgoing: BytesMut::new(), memory, row: None }
    }

    /// Sends the outgoing messages.
    pub async fn send(&mut self) -> io::Result<()> {
        // Also releases the buffer of a large argument.
        let outgoing = mem::take(&mut self.outgoing);
        self.socket.write_all(&outgoing).await?;
        self.socket.flush().await
    }

    /// Returns the next message. Skips notices, notifications and changed settings.
    ///
    /// # Errors
    /// Returns [`Failure::Server`] for an error that the server reports.
    pub async fn next(&mut self) -> Result<Message, Failure> {
        if self.row.is_some() {
            // Releases the memory of the row before its reservation.
            self.received = BytesMut::from(&*self.received);
            self.row = None;
        }
        loop {
            self.fill(LENGTH_BYTES + 1).await?;
            let Some(header) = Header::parse(&self.received)? else { return Err(violation("a header is missing")) };
            let body = usize::try_from(header.len()).unwrap_or_default().saturating_sub(LENGTH_BYTES);
            match header.tag() {
                backend::NOTICE_RESPONSE_TAG
                | backend::NOTIFICATION_RESPONSE_TAG
                | backend::PARAMETER_STATUS_TAG
                | backend::COPY_DATA_TAG => self.skip(LENGTH_BYTES + 1 + body).await?,
                backend::ERROR_RESPONSE_TAG => return Err(Failure::Server(self.error(body).await?)),
                backend::DATA_ROW_TAG if body > MAX_ROW_BYTES => {
                    return Err(Failure::Fatal(DatabaseError::ResultTooLarge(MAX_RESULT_BYTES)));
                }
                backend::DATA_ROW_TAG => {
                    if body > SMALL_BYTES {
                        // The memory of the row and of its JSON.
                        let reserved = self.memory.reserve(body + body.min(MAX_RESULT_BYTES)).await;
                        self.row = Some(reserved.map_err(|_| violation("the node is stopping"))?);
                    }
                    return self.message(body).await;
                }
                _ if body > MAX_MESSAGE_BYTES => return Err(violation("a message is too long")),
                _ => return self.message(body).await,
            }
        }
    }

    async fn message(&mut self, body: usize) -> Result<Message, Failure> {
        let length = LENGTH_BYTES + 1 + body;
        self.fill(length).await?;
        let mut message = self.received.split_to(length);
        Message::parse(&mut message)?.ok_or_else(|| violation("a message is incomplete"))
    }

    async fn error(&mut self, body: usize) -> Result<ServerError, Failure> {
        self.skip(LENGTH_BYTES + 1).await?;
        let kept = body.min(MAX_ERROR_BYTES);
        self.fill(kept).await?;
        let fields = self.received.split_to(kept).freeze();
        self.skip(body - kept).await?;
        Ok(server_error(fields))
    }

    /// Reads until this number of bytes was received.
    async fn fill(&mut self, length: usize) -> io::Result<()> {
        self.received.reserve(length.saturating_sub(self.received.len()));
        while self.received.len() < length {
            if self.socket.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    async fn skip(&mut self, mut length: usize) -> io::Result<()> {
        loop {
            let part = length.min(self.received.len());
            self.received.advance(part);
            length -= part;
            if length == 0 {
                return Ok(());
            }
            self.fill(1).await?;
        }
    }

    /// Releases the memory of a large message. Call it between calls, when the buffer of received bytes is empty.
    pub fn release(&mut self) {
        self.row = None;
        if self.received.is_empty() {
            self.received = BytesMut::new();
        }
    }

    /// Returns whether an idle connection is open and the server sent nothing.
    pub fn is_quiet(&mut self) -> bool {
        self.received.is_empty() && self.socket.read_buf(&mut self.received).now_or_never().is_none()
    }

    /// Reads and ignores everything until the server closes the connection.
    pub async fn wait_until_closed(&mut self, limit: std::time::Duration) -> bool {
        let closed = async {
            self.received.clear();
            while let Ok(1..) = self.socket.read_buf(&mut self.received).await {
                self.received.clear();
            }
        };
        timeout(limit, closed).await.is_ok()
    }
}

/// Reads the fields of an error. Replaces text that is not UTF-8, because a session may have another encoding.
fn server_error(fields: Bytes) -> ServerError {
    let mut error = ServerError { code: "XX000".to_owned(), message: "unknown error".to_owned(), is_fatal: false };
    for field in fields.split(|byte| *byte == 0) {
        let Some((kind, value)) = field.split_first() else { break };
        let value = || String::from_utf8_lossy(value).into_owned();
        match kind {
            b'V' => error.is_fatal = matches!(value().as_str(), "FATAL" | "PANIC"),
            b'C' => error.code = value(),
            b'M' => error.message = value(),
            _ => {}
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message of a row with one large value.
    fn large_row() -> Vec<u8> {
        let value = vec![b'x'; 4 << 20];
        let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
        [b"D".as_slice(), &length(10 + value.len()), &[0, 1], &length(value.len()), &value].concat()
    }

    #[tokio::test]
    async fn next_message_releases_a_large_row() {
        let (socket, mut server) = tokio::io::duplex(64 << 10);
        let mut wire = Wire::new(Box::new(socket), crate::pg::memory().of("usr_1"));
        let messages = [large_row().as_slice(), b"Z\0\0\0\x05I"].concat();
        let sent = tokio::spawn(async move { server.write_all(&messages).await.map(|()| server) });
        let Ok(Message::DataRow(row)) = wire.next().await else { panic!("not a row") };
        drop(row);
        let _server = sent.await.unwrap().unwrap();
        assert!(matches!(wire.next().await, Ok(Message::ReadyForQuery(_))));
        assert!(wire.row.is_none() && wire.received.capacity() < SMALL_BYTES, "{}", wire.received.capacity());
    }

    #[tokio::test]
    async fn idle_connection_holds_no_large_buffer() {
        let (socket, mut server) = tokio::io::duplex(64 << 10);
        let mut wire = Wire::new(Box::new(socket), crate::pg::memory().of("usr_1"));
        let row = large_row();
        let sent = tokio::spawn(async move { server.write_all(&row).await.map(|()| server) });
        let Ok(Message::DataRow(row)) = wire.next().await else { panic!("not a row") };
        drop(row);
        assert!(wire.row.is_some());
        wire.release();
        assert!(wire.row.is_none() && wire.received.capacity() == 0, "{}", wire.received.capacity());
        // The rest of a message is kept.
        let mut server = sent.await.unwrap().unwrap();
        server.write_all(b"Z\0\0\0\x05IZ\0").await.unwrap();
        wire.next().await.unwrap();
        wire.release();
        server.write_all(b"\0\0\x05I").await.unwrap();
        assert!(matches!(wire.next().await, Ok(Message::ReadyForQuery(_))));
    }
}
