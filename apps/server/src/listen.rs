//! The public listeners: plain http for a proxy, and https.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix_http::HttpService;
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{IntoServiceFactory as _, Service, ServiceFactory, ServiceFactoryExt as _, map_config};
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, Extensions, ServiceResponse};
use gateway::{Services, public_app};
use tls::{Handshaker, TlsConnection, terminate};
use tokio::net::TcpStream;

/// The time that requests in flight have to finish during a graceful shutdown.
const SHUTDOWN_TIMEOUT_SECONDS: u64 = 25;

/// Serves the listeners with the same worker threads and limits. The server does not handle signals.
pub(crate) fn serve(
    http: TcpListener,
    https: Option<(TcpListener, Handshaker)>,
    services: &Services,
    threads: usize,
) -> io::Result<Server> {
    let builder = Server::build().workers(threads.max(1)).shutdown_timeout(SHUTDOWN_TIMEOUT_SECONDS).disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let (store, shared) = (services.store(), (services.clone(), stopping.clone()));
    let mut builder = builder.listen("http", http, move || {
        // This function runs once in each worker thread.
        store.bind_pool_to_thread();
        service::<TcpStream>(&shared, |_, _| {}).tcp()
    })?;
    if let Some((listener, handshaker)) = https {
        let shared = (services.clone(), stopping);
        builder = builder.listen("https", listener, move || {
            let respond = service::<TlsConnection>(&shared, |connection, data| {
                data.insert(connection.requests());
            });
            terminate(handshaker.clone(), shared.1.clone(), respond)
        })?;
    }
    Ok(builder.run())
}

/// Returns the HTTP service of connections of one type.
fn service<T: 'static>(
    (services, stopping): &(Services, GracefulShutdownSignal),
    on_connect: fn(&T, &mut Extensions),
) -> HttpService<
    T,
    impl ServiceFactory<
        actix_http::Request,
        Config = (),
        Response = ServiceResponse<BoxBody>,
        Error = HttpResponse,
        InitError = (),
        Service: Service<actix_http::Request, Future: 'static>,
        Future: 'static,
    > + use<T>,
    BoxBody,
> {
    let stopping = stopping.clone();
    let service = HttpService::build()
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .tcp_nodelay(true)
        .client_request_timeout(Duration::from_secs(5))
        .client_disconnect_timeout(Duration::from_secs(1))
        .keep_alive(Duration::from_secs(75))
        .on_connect_ext(on_connect);
    let app = public_app(services).into_factory().map_err(|error: actix_web::Error| error.error_response());
    service.finish(map_config(app, |()| AppConfig::default()))
}
