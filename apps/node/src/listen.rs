//! The listeners of the front.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use actix_http::HttpService;
use actix_server::{GracefulShutdownSignal, Server};
use actix_service::{IntoServiceFactory as _, Service, ServiceFactory, ServiceFactoryExt as _, map_config};
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, Extensions, ServiceResponse};
use actix_web::http::header::X_CONTENT_TYPE_OPTIONS;
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data};
use actix_web::{App, HttpResponse};
use tls::{Handshaker, TlsConnection, terminate};
use tokio::net::TcpStream;

use crate::front::{Front, handle};

/// How long the server waits for a client to close its side of a connection.
const CLIENT_DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the listeners with the same workers and limits. The server does not handle signals.
pub fn serve(http: TcpListener, https: Option<(TcpListener, Handshaker)>, front: Front) -> io::Result<Server> {
    let front = Data::new(front);
    let builder = Server::build().disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let shared = (Data::clone(&front), stopping.clone());
    let mut builder = builder.listen("http", http, move || service::<TcpStream>(shared.clone(), |_, _| {}).tcp())?;
    if let Some((listener, handshaker)) = https {
        let shared = (front, stopping);
        builder = builder.listen("https", listener, move || {
            let respond = service::<TlsConnection>(shared.clone(), |connection, data| {
                data.insert(connection.requests());
                data.insert(connection.presented());
            });
            terminate(handshaker.clone(), shared.1.clone(), respond)
        })?;
    }
    Ok(builder.run())
}

/// Returns the HTTP service of connections of one type.
fn service<T: 'static>(
    (front, stopping): (Data<Front>, GracefulShutdownSignal),
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
    >,
    BoxBody,
> {
    let app = App::new()
        .app_data(front)
        .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
        .default_service(web::to(handle));
    let service = HttpService::build()
        .graceful_shutdown_signal(move || {
            let stopping = stopping.clone();
            async move { stopping.notified().await }
        })
        .tcp_nodelay(true)
        // If the visitor disconnects, the request is dropped, which also ends the calls of its worker code.
        .h1_allow_half_closed(false)
        .client_disconnect_timeout(CLIENT_DISCONNECT_TIMEOUT)
        .on_connect_ext(on_connect);
    let app = app.into_factory().map_err(|error: actix_web::Error| error.error_response());
    service.finish(map_config(app, |()| AppConfig::default()))
}
