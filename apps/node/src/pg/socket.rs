//! Opens sockets to Postgres: TCP or Unix, with optional TLS.

use std::io;

use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::database::server::{Address, Tls};
use crate::duplex::Duplex;

/// An open socket.
pub type Socket = Box<dyn Duplex>;

/// Opens a socket. A host that begins with `/` is the folder of a Unix socket.
pub async fn open(address: &Address) -> io::Result<Socket> {
    if address.host.starts_with('/') {
        let path = format!("{}/.s.PGSQL.{}", address.host, address.port);
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
    stream.set_nodelay(true)?;
    match &address.tls {
        Tls::Off => Ok(Box::new(stream)),
        Tls::Verified { config, .. } => {
            let name = ServerName::try_from(address.host.clone()).map_err(io::Error::other)?;
            let stream = request_tls(stream).await?;
            Ok(Box::new(TlsConnector::from(config.clone()).connect(name, stream).await?))
        }
    }
}

/// Asks the server to continue with TLS. The response is one byte; more would be unencrypted data of an attacker, which
/// stays in the socket and fails the handshake.
async fn request_tls(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await?;
    match stream.read_u8().await? {
        b'S' => Ok(stream),
        _ => Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the server does not support TLS")),
    }
}
