//! A connection that is read a line at a time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Yields at most one line at a read and leaves the rest with the system.
///
/// The client above keeps what it has read beyond the answer to STARTTLS, and would take it for what the server says
/// behind TLS; anybody on the way could put it there. Left with the system it meets the handshake, which fails.
#[derive(Debug)]
pub(super) struct Lines(pub TcpStream);

impl AsyncRead for Lines {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        let mut bytes = [0; 1024];
        let room = buffer.remaining().min(bytes.len());
        let mut ahead = ReadBuf::new(bytes.get_mut(..room).unwrap_or_default());
        ready!(stream.poll_peek(cx, &mut ahead))?;
        let there = ahead.filled();
        // Nothing is there at the end of the connection, and nothing is read then.
        let line = there.iter().position(|byte| *byte == b'\n').map_or(there.len(), |end| end + 1);
        let mut read = ReadBuf::new(bytes.get_mut(..line).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Lines {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().0).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().0).poll_shutdown(cx)
    }
}

impl AsyncTokioStream for Lines {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}
