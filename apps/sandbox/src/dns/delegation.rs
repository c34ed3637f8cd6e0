//! Queries for delegated names, at the nameserver that serves them.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::Transport;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends a query to a nameserver, over the transport of the client. Returns the response.
pub(super) async fn forward(nameserver: SocketAddr, request: &[u8], transport: Transport) -> io::Result<Vec<u8>> {
    let response = async {
        match transport {
            Transport::Udp => forward_udp(nameserver, request).await,
            Transport::Tcp => forward_tcp(nameserver, request).await,
        }
    };
    timeout(TIMEOUT, response).await?
}

async fn forward_udp(nameserver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let any = if nameserver.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(nameserver).await?;
    socket.send(request).await?;
    let mut response = vec![0; usize::from(u16::MAX)];
    let length = socket.recv(&mut response).await?;
    response.truncate(length);
    Ok(response)
}

async fn forward_tcp(nameserver: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(nameserver).await?;
    stream.write_u16(request.len().try_into().map_err(io::Error::other)?).await?;
    stream.write_all(request).await?;
    let mut response = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut response).await?;
    Ok(response)
}
