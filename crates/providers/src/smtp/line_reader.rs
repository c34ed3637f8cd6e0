//! A connection that is read line by line.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection that returns at most one line per read and leaves the rest in the socket buffer.
///
/// lettre would keep the bytes after the reply to STARTTLS, and later accept them as replies over TLS. An attacker on
/// the network could inject such bytes. In the socket buffer, they make the TLS handshake fail instead.
#[derive(Debug)]
pub(super) struct LineReader(pub TcpStream);

impl AsyncRead for LineReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        let mut bytes = [0; 1024];
        let len = buffer.remaining().min(bytes.len());
        let mut peeked = ReadBuf::new(bytes.get_mut(..len).unwrap_or_default());
        ready!(stream.poll_peek(cx, &mut peeked))?;
        let available = peeked.filled();
        // At the end of the connection, nothing is available and the read returns 0 bytes.
        let line = available.iter().position(|byte| *byte == b'\n').map_or(available.len(), |end| end + 1);
        let mut read = ReadBuf::new(bytes.get_mut(..line).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for LineReader {
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

impl AsyncTokioStream for LineReader {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.peer_addr()
    }
}
