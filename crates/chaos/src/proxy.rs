//! A TCP proxy that injects network faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The destination of a proxy.
#[derive(Debug, Clone)]
pub enum Upstream {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// A network fault. It affects open and new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkFault {
    /// No fault.
    None,
    /// All connections are closed, and new ones are refused.
    Disconnect,
    /// Connections stay open, but no data passes. The proxy forwards the data when the fault ends.
    Blackhole,
    /// All data is delayed by this duration.
    Delay(Duration),
}

/// A proxy on a free port. It accepts no connections after it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    fault: watch::Sender<NetworkFault>,
    task: AbortHandle,
}

impl Proxy {
    /// Starts a proxy for `upstream`, without a fault.
    ///
    /// # Errors
    /// Returns an error if no port can be bound.
    pub async fn start(upstream: Upstream) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (fault, faults) = watch::channel(NetworkFault::None);
        let task = tokio::spawn(serve(listener, upstream, faults));
        Ok(Self { address, fault, task: task.abort_handle() })
    }

    /// Starts a proxy for the Postgres at a URL with a unix socket. Returns the URL through the proxy.
    ///
    /// # Errors
    /// Returns an error if the URL does not name exactly one unix socket, or if no port can be bound.
    pub async fn start_for_postgres(url: &str) -> anyhow::Result<(Self, String)> {
        let database: tokio_postgres::Config = url.parse()?;
        let [tokio_postgres::config::Host::Unix(folder)] = database.get_hosts() else {
            anyhow::bail!("the URL does not name exactly one unix socket");
        };
        let port = database.get_ports().first().copied().unwrap_or(5432);
        let proxy = Self::start(Upstream::Unix(folder.join(format!(".s.PGSQL.{port}")))).await?;
        let (user, name) = (database.get_user().unwrap_or_default(), database.get_dbname().unwrap_or_default());
        let url = format!("postgres://{user}@{}/{name}", proxy.address);
        Ok((proxy, url))
    }

    /// Returns the address of the proxy.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Injects a fault until the next call.
    pub fn set_fault(&self, fault: NetworkFault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, upstream: Upstream, faults: watch::Receiver<NetworkFault>) {
    while let Ok((client, _)) = listener.accept().await {
        if *faults.borrow() != NetworkFault::Disconnect {
            tokio::spawn(connect(client, upstream.clone(), faults.clone()));
        }
    }
}

async fn connect(client: TcpStream, upstream: Upstream, mut faults: watch::Receiver<NetworkFault>) -> io::Result<()> {
    let mut cut = faults.clone();
    let joined = async {
        // Fails only after the proxy is dropped: its open connections then have no fault.
        let _ = faults.wait_for(|fault| *fault != NetworkFault::Blackhole).await;
        match upstream {
            Upstream::Tcp(address) => forward(client, TcpStream::connect(address).await?, faults).await,
            Upstream::Unix(path) => forward(client, UnixStream::connect(path).await?, faults).await,
        }
    };
    tokio::select! {
        _ = cut.wait_for(|fault| *fault == NetworkFault::Disconnect) => Ok(()),
        joined = joined => joined,
    }
}

async fn forward(
    client: impl AsyncRead + AsyncWrite,
    server: impl AsyncRead + AsyncWrite,
    faults: watch::Receiver<NetworkFault>,
) -> io::Result<()> {
    let ((from_client, to_client), (from_server, to_server)) = (split(client), split(server));
    tokio::try_join!(copy(from_client, to_server, faults.clone()), copy(from_server, to_client, faults))?;
    Ok(())
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut faults: watch::Receiver<NetworkFault>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = from.read(&mut buffer).await?;
        let _ = faults.wait_for(|fault| *fault != NetworkFault::Blackhole).await;
        let fault = *faults.borrow();
        if let NetworkFault::Delay(delay) = fault {
            tokio::time::sleep(delay).await;
        }
        match buffer.get(..read) {
            Some([]) | None => return to.shutdown().await,
            Some(bytes) => to.write_all(bytes).await?,
        }
    }
}
