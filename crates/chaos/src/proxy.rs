//! A TCP proxy that fails in the ways networks do.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// What is behind the proxy.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// An address.
    Tcp(SocketAddr),
    /// A socket of this machine.
    Unix(PathBuf),
}

/// What becomes of connections, those that are open and those that come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// They pass.
    Open,
    /// They end.
    Cut,
    /// They stand, and nothing passes: neither side is told. What was sent arrives once it is over.
    Hole,
    /// Everything passes so much later.
    Slow(Duration),
}

/// A proxy on a port of its own. Dropped, it lets nobody in any more.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    passage: watch::Sender<Passage>,
    task: AbortHandle,
}

impl Proxy {
    /// Stands before `upstream`; everything passes.
    ///
    /// # Errors
    /// There is no port.
    pub async fn before(upstream: Upstream) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (passage, passages) = watch::channel(Passage::Open);
        let task = tokio::spawn(serve(listener, upstream, passages));
        Ok(Self { address, passage, task: task.abort_handle() })
    }

    /// Stands before the Postgres whose address names a unix socket. Gives the database's address through the proxy.
    ///
    /// # Errors
    /// It is no such address, or there is no port.
    pub async fn before_postgres(url: &str) -> anyhow::Result<(Self, String)> {
        let database: tokio_postgres::Config = url.parse()?;
        let [tokio_postgres::config::Host::Unix(folder)] = database.get_hosts() else {
            anyhow::bail!("no address of one unix socket");
        };
        let port = database.get_ports().first().copied().unwrap_or(5432);
        let proxy = Self::before(Upstream::Unix(folder.join(format!(".s.PGSQL.{port}")))).await?;
        let (user, name) = (database.get_user().unwrap_or_default(), database.get_dbname().unwrap_or_default());
        let url = format!("postgres://{user}@{}/{name}", proxy.address);
        Ok((proxy, url))
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on.
    pub fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, upstream: Upstream, passages: watch::Receiver<Passage>) {
    while let Ok((client, _)) = listener.accept().await {
        if *passages.borrow() != Passage::Cut {
            tokio::spawn(connect(client, upstream.clone(), passages.clone()));
        }
    }
}

async fn connect(client: TcpStream, upstream: Upstream, mut passages: watch::Receiver<Passage>) -> io::Result<()> {
    let mut cut = passages.clone();
    let joined = async {
        let _ = passages.wait_for(|passage| *passage != Passage::Hole).await;
        match upstream {
            Upstream::Tcp(address) => join(client, TcpStream::connect(address).await?, passages).await,
            Upstream::Unix(path) => join(client, UnixStream::connect(path).await?, passages).await,
        }
    };
    tokio::select! {
        _ = cut.wait_for(|passage| *passage == Passage::Cut) => Ok(()),
        joined = joined => joined,
    }
}

async fn join(
    client: impl AsyncRead + AsyncWrite,
    server: impl AsyncRead + AsyncWrite,
    passages: watch::Receiver<Passage>,
) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    tokio::try_join!(pass(from_client, to_server, passages.clone()), pass(from_server, to_client, passages))?;
    Ok(())
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut passages: watch::Receiver<Passage>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let _ = passages.wait_for(|passage| *passage != Passage::Hole).await;
        let passage = *passages.borrow();
        if let Passage::Slow(delay) = passage {
            tokio::time::sleep(delay).await;
        }
        match buffer.get(..read) {
            Some([]) | None => return to.shutdown().await,
            Some(bytes) => to.write_all(bytes).await?,
        }
    }
}
