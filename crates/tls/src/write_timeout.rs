//! Clients that do not read a response.
//!
//! actix waits for such a client without a limit, and keeps the response and everything that its body holds.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection that fails if data waits to be sent, and the client takes none of it for the timeout. Without such
/// data, the connection can be idle for any time.
#[derive(Debug)]
pub struct WriteTimeout<T> {
    stream: T,
    timeout: Duration,
    /// Elapses if the client takes no data until then; `None` if no data waits.
    expiry: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteTimeout<T> {
    pub(crate) const fn new(stream: T, timeout: Duration) -> Self {
        Self { stream, timeout, expiry: None }
    }

    fn limit<R>(&mut self, context: &mut Context<'_>, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.expiry = None;
            return polled;
        }
        // This also wakes the task of the connection, which nothing else does while the client does not read.
        let expiry = self.expiry.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        ready!(expiry.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.limit(context, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.limit(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(context);
        this.limit(context, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);
    const ALMOST: Duration = Duration::from_secs(59);

    #[tokio::test(start_paused = true)]
    async fn client_must_take_data_within_the_timeout() {
        let (stream, mut client) = duplex(4);
        let mut connection = WriteTimeout::new(stream, TIMEOUT);
        connection.write_all(b"full").await.unwrap();
        // Nothing waits to be sent.
        sleep(10 * TIMEOUT).await;
        let write = tokio::spawn(async move { connection.write_all(b"twelve bytes").await });
        for _ in 0..3 {
            sleep(ALMOST).await;
            client.read_exact(&mut [0; 4]).await.unwrap();
        }
        assert!(write.await.unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn connection_of_a_client_that_takes_nothing_fails() {
        let (stream, _client) = duplex(4);
        let mut connection = WriteTimeout::new(stream, TIMEOUT);
        let error = connection.write_all(b"longer").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
