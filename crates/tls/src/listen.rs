//! The service of a listener that terminates TLS.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_http::Protocol;
use actix_server::GracefulShutdownSignal;
use actix_service::{Service, ServiceFactory, ServiceFactoryExt as _, apply_fn_factory, fn_service};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::connection::TlsConnection;
use crate::handshake::Handshaker;

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 2048;
/// The number of TLS handshakes per worker thread. Further connections wait for these.
const MAX_CONCURRENT_HANDSHAKES: usize = 512;

/// A connection after its handshake, as the HTTP service expects it.
pub type Connection = (TlsConnection, Protocol, Option<SocketAddr>);

/// Listens on an address. Must be called within a tokio runtime.
///
/// # Errors
/// Returns an error if the address cannot be used.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Returns the service of a listener: the handshake, and then the HTTP service. When the server stops, a connection with
/// HTTP/2 is closed after its requests, which actix does not do.
pub fn terminate<S>(
    handshaker: Handshaker,
    stopping: GracefulShutdownSignal,
    http: S,
) -> impl ServiceFactory<
    TcpStream,
    Config = (),
    Response = (),
    Error = (),
    InitError = (),
    Service: Service<TcpStream, Future: 'static>,
    Future: 'static,
>
where
    S: ServiceFactory<Connection, Config = (), Response = (), InitError = (), Future: 'static, Service: 'static>
        + 'static,
    <S::Service as Service<Connection>>::Future: 'static,
{
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_HANDSHAKES));
    let accept = fn_service(move |stream| {
        let (handshaker, permits) = (handshaker.clone(), Arc::clone(&permits));
        async move {
            let _permit = permits.acquire().await.map_err(|_| ())?;
            let accepted = handshaker.accept(stream).await.map_err(|_| ())?;
            let is_http_2 = accepted.protocol == Protocol::Http2;
            let connection = TlsConnection::new(accepted.stream, is_http_2, accepted.presented);
            Ok((connection, accepted.protocol, accepted.client))
        }
    });
    let respond = apply_fn_factory(http.map_err(|_| ()), move |accepted: Connection, service| {
        let (connection, protocol, _) = &accepted;
        let is_http_2 = *protocol == Protocol::Http2;
        let drained = connection.requests().drain(stopping.clone());
        let served = service.call(accepted);
        async move {
            tokio::select! {
                served = served => served,
                () = drained, if is_http_2 => Ok(()),
            }
        }
    });
    accept.and_then(respond)
}
