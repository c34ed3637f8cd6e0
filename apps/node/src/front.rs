//! The front: the HTTP server for visitors of the deployed projects.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::http::header::{CACHE_CONTROL, ContentType, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use protocol::AccessMode;
use tokio::sync::watch;

use crate::access::AccessGate;
use crate::asset::REVALIDATE;
use crate::contents::Contents;
use crate::index::{Entry, Index};
use crate::origin::{Origins, authority};
use crate::page::{page, unknown_hostname_error};
use crate::path;
use crate::routes::Routes;
use crate::serve::serve_assets;
use crate::worker::proxy;

/// [`REVALIDATE`] for protected sites: shared caches must not store the response.
const PRIVATE: &str = "private, max-age=0, must-revalidate";

/// The health check, available on every host.
const HEALTH: &str = "/__svc/node/health";

/// The state that requests share.
pub struct Front {
    routes: watch::Receiver<Arc<Routes>>,
    contents: Arc<Contents>,
    gate: AccessGate,
    origins: Arc<Origins>,
}

impl Front {
    /// Creates a front that serves each request from the current `routes`.
    pub const fn new(
        routes: watch::Receiver<Arc<Routes>>,
        contents: Arc<Contents>,
        gate: AccessGate,
        origins: Arc<Origins>,
    ) -> Self {
        Self { routes, contents, gate, origins }
    }
}

/// Starts listening. The server does not handle signals.
pub fn listen(address: SocketAddr, front: Front) -> io::Result<(SocketAddr, Server)> {
    let front = Data::new(front);
    let app = move || {
        App::new()
            .app_data(Data::clone(&front))
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .default_service(web::to(handle))
    };
    // If the visitor disconnects, the request is dropped, which also ends the calls of its worker code.
    let server = HttpServer::new(app).tcp_nodelay(true).h1_allow_half_closed(false).disable_signals().bind(address)?;
    let address = server.addrs().first().copied().unwrap_or(address);
    Ok((address, server.run()))
}

async fn handle(request: HttpRequest, payload: Payload, front: Data<Front>) -> HttpResponse {
    if request.uri().path() == HEALTH {
        return HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok");
    }
    let Some(host) = host(&request) else { return unknown_hostname_error() };
    let site = front.routes.borrow().of_hostname(&host);
    let Some(site) = site else { return unknown_hostname_error() };
    let payload = match front.gate.authorize(&request, payload, &host, &site.project, &site.access).await {
        Ok(payload) => payload,
        Err(response) => return response,
    };
    match &site.index {
        None => page(StatusCode::SERVICE_UNAVAILABLE, "This site is being deployed. Try again in a minute."),
        Some(index) if is_for_code(&request, index) => {
            proxy::forward_request(
                &request,
                payload,
                front.origins.of(&request),
                site.worker.as_ref().map_err(|reason| *reason),
            )
            .await
        }
        Some(index) => {
            let mut response = serve_assets(&request, &front.contents, index).await;
            if site.access.mode != AccessMode::Public
                && response.headers().get(CACHE_CONTROL).is_some_and(|it| it == REVALIDATE)
            {
                response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(PRIVATE));
            }
            response
        }
    }
}

/// Returns the requested hostname, in the form of the routes.
fn host(request: &HttpRequest) -> Option<Cow<'_, str>> {
    let host = authority(request)?;
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_lowercase = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lowercase { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) })
}

/// Returns whether worker code handles the request, because the bundle has code and no asset matches.
fn is_for_code(request: &HttpRequest, index: &Index) -> bool {
    let is_asset = || {
        let path = path::decode(request.uri().path());
        path.is_some_and(|path| !matches!(index.find(&path), Entry::Missing))
    };
    index.code.is_some() && !(matches!(*request.method(), Method::GET | Method::HEAD) && is_asset())
}
