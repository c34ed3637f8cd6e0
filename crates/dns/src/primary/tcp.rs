//! Connections over TCP (RFC 7766). The requests of a connection are processed one after the other.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kernel::error_chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::Shared;
use super::request::{RequestCheck, Transport};

/// The timeout to receive a complete request, and to send each message of an answer.
const IO_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a request. A question, an SOA and a signature need less than half of it.
const MAX_REQUEST_LENGTH: usize = 4096;
/// The minimum time between two warnings about failures to accept connections.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The sending half of a connection.
pub(super) struct MessageSink(OwnedWriteHalf);

/// Accepts connections until the returned future is dropped, which closes them.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    let mut last_warning: Option<Instant> = None;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let source = peer.ip().to_canonical();
                    // Without a permit, the connection is closed immediately.
                    if let Some(permit) = shared.connections.acquire(source, shared.is_secondary(source)) {
                        let shared = shared.clone();
                        connections.spawn(async move {
                            let result = serve_connection(&shared, source, stream).await;
                            tracing::debug!(%source, ?result, "closed a connection");
                            drop(permit);
                        });
                    }
                }
                Err(error) => {
                    if last_warning.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                        tracing::warn!(error = %error_chain(&error), "failed to accept a connection");
                        last_warning = Some(Instant::now());
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(shared: &Shared, source: IpAddr, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, answers) = stream.into_split();
    let mut sink = MessageSink(answers);
    while let Some(request) = timeout(IO_TIMEOUT, read_request(&mut requests)).await?? {
        match shared.check_request(source, Transport::Tcp, &request) {
            RequestCheck::Ignored => break,
            RequestCheck::Answered(answer) => sink.send(&answer).await?,
            RequestCheck::Query { zone, query, reply } => {
                shared.transfer(source, &zone, query, *reply, &mut sink).await?;
            }
        }
    }
    Ok(())
}

/// Reads the next request. Returns `None` at the end of the stream and for a request that is too long.
async fn read_request(requests: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let length = match requests.read_u16().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::from(length?),
    };
    if length > MAX_REQUEST_LENGTH {
        return Ok(None);
    }
    let mut request = vec![0; length];
    requests.read_exact(&mut request).await?;
    Ok(Some(request))
}

impl MessageSink {
    /// Sends one message.
    pub(super) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), message].concat();
        timeout(IO_TIMEOUT, self.0.write_all(&framed)).await?
    }
}
