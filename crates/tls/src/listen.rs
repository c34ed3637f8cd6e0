//! The listeners of a server: plain http, and https.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use actix_http::{HttpServiceBuilder, Protocol, Request, Response};
use actix_server::{GracefulShutdownSignal, Server, ServerBuilder};
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt as _, apply_fn_factory, fn_service, map_config,
};
use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions};
use actix_web::http::StatusCode;
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::{TcpSocket, TcpStream};

use crate::connection::TlsConnection;
use crate::handshake::{HandshakePermits, Handshaker};
use crate::rejection::{Rejecting, RenderRejection, track_responses};
use crate::unread_body::wrap_request_bodies;
use crate::write_timeout::WriteTimeout;

/// The number of connections that may wait to be accepted.
const BACKLOG: u32 = 2048;
/// The largest amount of unsent data in the send buffer of a connection. The kernel accepts more data when the client has
/// taken half of it, which ends the wait of the write timeout. Without this limit, a third of up to 4 MiB must be free.
#[cfg(target_os = "linux")]
const MAX_UNSENT_BYTES: u32 = 128 << 10;
/// The number of TLS handshakes per worker thread, of which one client gets an eighth. Further ones wait.
const MAX_CONCURRENT_HANDSHAKES: usize = 512;
/// The timeout of the head of a request.
pub(crate) const CLIENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the server waits for a client to close its side of a connection.
const CLIENT_DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The settings in which the servers differ.
#[derive(Debug, Clone, Copy)]
pub struct HttpSettings {
    /// How long an idle connection stays open. With HTTP/2, it is the interval of the server's pings, and the time in which
    /// the client must respond to one, also while it receives data. A ping can wait behind 200 KiB of data.
    pub keep_alive: Duration,
    /// How long a client may take none of the data that waits to be sent. Afterwards, its connection is closed; with
    /// HTTP/2, also if this applies to many responses of the connection.
    pub write_timeout: Duration,
    /// Whether a request continues after its client closed its side of the connection.
    pub allows_half_closed: bool,
    /// Returns the address under which a client is counted, such as the network of its address.
    pub client_key: fn(IpAddr) -> IpAddr,
}

/// A connection of plain http, as the HTTP service expects it.
type PlainConnection = (Rejecting<WriteTimeout<TcpStream>>, Protocol, Option<SocketAddr>);

/// A connection after its handshake, as the HTTP service expects it.
type Connection = (Rejecting<TlsConnection>, Protocol, Option<SocketAddr>);

/// Listens on an address. Must be called within a tokio runtime.
///
/// # Errors
/// Returns an error if the address cannot be used.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this option. Without it, fewer slow clients can read a whole response.
    #[cfg(target_os = "linux")]
    let _ = SockRef::from(&socket).set_tcp_notsent_lowat(MAX_UNSENT_BYTES);
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Serves an app at the listeners, with the same worker threads and limits. Each worker thread calls `app` once per
/// listener. `reject` renders the response to a request over HTTP/1 that the app does not receive, because it is malformed,
/// too large or too slow. The server does not handle signals.
///
/// # Errors
/// Returns an error if a listener cannot be used.
pub fn serve<I, S, B>(
    builder: ServerBuilder,
    (http, https): (TcpListener, Option<(TcpListener, Handshaker)>),
    settings: HttpSettings,
    app: impl Fn() -> I + Clone + Send + 'static,
    reject: impl Fn(StatusCode) -> HttpResponse + Clone + Send + 'static,
) -> io::Result<Server>
where
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<
            Request,
            Config = AppConfig,
            Response: Into<Response<B>> + 'static,
            Error = actix_web::Error,
            InitError = (),
            Service: Service<Request, Future: 'static> + 'static,
            Future: 'static,
        > + 'static,
    B: MessageBody + Unpin + 'static,
{
    let app = move || {
        let app = app().into_factory().map_err(|error| error.error_response());
        map_config(track_responses(wrap_request_bodies(app)), |()| AppConfig::default())
    };
    let builder = builder.disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let mut builder = builder.listen("http", http, {
        let (app, stopping, reject) = (app.clone(), stopping.clone(), reject.clone());
        move || {
            let respond = http_service(settings, stopping.clone(), add_connection_data).finish(app());
            accept_plain(settings, Rc::new(reject.clone()), respond)
        }
    })?;
    if let Some((listener, handshaker)) = https {
        builder = builder.listen("https", listener, move || {
            let respond = http_service(settings, stopping.clone(), add_tls_data).finish(app());
            terminate(handshaker.clone(), settings, stopping.clone(), Rc::new(reject.clone()), respond)
        })?;
    }
    Ok(builder.run())
}

fn add_connection_data<T>(connection: &Rejecting<T>, data: &mut Extensions) {
    data.insert(connection.responses());
}

fn add_tls_data(connection: &Rejecting<TlsConnection>, data: &mut Extensions) {
    add_connection_data(connection, data);
    data.insert(connection.stream().requests());
    data.insert(connection.stream().presented());
}

/// Returns the builder of the HTTP service of connections of one type.
fn http_service<T: 'static, S>(
    settings: HttpSettings,
    stopping: GracefulShutdownSignal,
    on_connect: fn(&T, &mut Extensions),
) -> HttpServiceBuilder<T, S>
where
    S: ServiceFactory<
            Request,
            Config = (),
            Error = HttpResponse,
            InitError = (),
            Service: Service<Request, Future: 'static>,
        >,
{
    HttpServiceBuilder::default()
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .h1_allow_half_closed(settings.allows_half_closed)
        .keep_alive(settings.keep_alive)
        .client_request_timeout(CLIENT_REQUEST_TIMEOUT)
        .client_disconnect_timeout(CLIENT_DISCONNECT_TIMEOUT)
        .on_connect_ext(on_connect)
}

/// Returns the service of the listener for plain http.
fn accept_plain<S>(
    settings: HttpSettings,
    reject: RenderRejection,
    http: S,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = (), InitError = ()>
where
    S: ServiceFactory<PlainConnection, Config = (), Response = (), InitError = ()> + 'static,
{
    let accept = fn_service(move |stream: TcpStream| {
        let reject = Rc::clone(&reject);
        async move {
            // A connection without this option still works.
            let _ = stream.set_nodelay(true);
            let client = stream.peer_addr().ok();
            let stream = WriteTimeout::new(stream, settings.write_timeout);
            Ok((Rejecting::new(stream, Some(reject), settings.keep_alive), Protocol::Http1, client))
        }
    });
    accept.and_then(http.map_err(|_| ()))
}

/// Returns the service of a listener that terminates TLS: the handshake, and then the HTTP service. When the server stops,
/// a connection with HTTP/2 is closed after its requests, which actix does not do.
fn terminate<S>(
    handshaker: Handshaker,
    settings: HttpSettings,
    stopping: GracefulShutdownSignal,
    reject: RenderRejection,
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
    let permits = HandshakePermits::new(MAX_CONCURRENT_HANDSHAKES, settings.client_key);
    let accept = fn_service(move |stream| {
        let (handshaker, permits, reject) = (handshaker.clone(), permits.clone(), Rc::clone(&reject));
        async move {
            let accepted = handshaker.accept(stream, settings.write_timeout, &permits).await.map_err(|_| ())?;
            let is_http_2 = accepted.protocol == Protocol::Http2;
            let connection = TlsConnection::new(accepted.stream, is_http_2, accepted.presented, settings.write_timeout);
            let reject = (!is_http_2).then_some(reject);
            Ok((Rejecting::new(connection, reject, settings.keep_alive), accepted.protocol, accepted.client))
        }
    });
    let respond = apply_fn_factory(http.map_err(|_| ()), move |accepted: Connection, service| {
        let (connection, protocol, _) = &accepted;
        let is_http_2 = *protocol == Protocol::Http2;
        let drained = connection.stream().requests().drain(stopping.clone());
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn accepted_connections_have_little_unsent_data() {
        let listener = bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert_eq!(SockRef::from(&accepted).tcp_notsent_lowat().unwrap(), MAX_UNSENT_BYTES);
    }
}
