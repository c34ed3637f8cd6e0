//! Connections over TCP (RFC 7766): one request after the other, for as long as there are any.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Shared;
use super::gate::{Transport, Verdict};

/// How long a connection waits for a whole request, and for each message of an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request: a question, an SOA and a signature need less than half of it.
const LONGEST: usize = 4096;

/// Where answers go to.
pub(super) struct Sink(OwnedWriteHalf);

/// Accepts connections for as long as it lives, and ends them with it.
pub(super) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let source = peer.ip().to_canonical();
                    // Without a place it is closed at once.
                    if let Some(place) = shared.connections.take(source, shared.knows(source)) {
                        let shared = shared.clone();
                        open.spawn(async move {
                            let ended = converse(&shared, source, stream).await;
                            tracing::debug!(%source, ?ended, "a connection ended");
                            drop(place);
                        });
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn converse(shared: &Shared, source: IpAddr, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut requests, answers) = stream.into_split();
    let mut sink = Sink(answers);
    while let Some(request) = timeout(PATIENCE, next(&mut requests)).await?? {
        match shared.judge(source, Transport::Tcp, &request) {
            Verdict::Ignored => break,
            Verdict::Answered(answer) => sink.send(&answer).await?,
            Verdict::About { zone, wanted, reply } => {
                shared.transfer(source, &zone, wanted, *reply, &mut sink).await?;
            }
        }
    }
    Ok(())
}

/// The next request; none at the end, and for one that is too long to be any.
async fn next(requests: &mut OwnedReadHalf) -> io::Result<Option<Vec<u8>>> {
    let length = match requests.read_u16().await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        length => usize::from(length?),
    };
    if length > LONGEST {
        return Ok(None);
    }
    let mut request = vec![0; length];
    requests.read_exact(&mut request).await?;
    Ok(Some(request))
}

impl Sink {
    /// Sends one message.
    pub(super) async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u16::try_from(message.len()).map_err(io::Error::other)?;
        let framed = [&length.to_be_bytes(), message].concat();
        timeout(PATIENCE, self.0.write_all(&framed)).await?
    }
}
