//! The front: what visitors of the deployed projects talk to.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, ContentType, HOST, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use tokio::sync::watch;

use crate::asset::{self, REVALIDATE};
use crate::cache::Cache;
use crate::converge::{Routes, Shown};
use crate::index::{Found, Index};
use crate::page::{page, unknown_hostname};
use crate::path;

/// Answers on every host, for whoever waits for the node to come up.
const HEALTH: &str = "/__svc/node/health";

/// What answering takes.
pub struct Front {
    routes: watch::Receiver<Arc<Routes>>,
    cache: Arc<Cache>,
}

impl Front {
    /// A front that shows what `routes` holds at the moment of each request.
    pub const fn new(routes: watch::Receiver<Arc<Routes>>, cache: Arc<Cache>) -> Self {
        Self { routes, cache }
    }
}

/// Listens, and leaves signals to the process.
pub fn listen(address: SocketAddr, front: Front) -> io::Result<(SocketAddr, Server)> {
    let front = Data::new(front);
    let app = move || {
        App::new()
            .app_data(Data::clone(&front))
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .default_service(web::to(answer))
    };
    let server = HttpServer::new(app).disable_signals().bind(address)?;
    let address = server.addrs().first().copied().unwrap_or(address);
    Ok((address, server.run()))
}

async fn answer(request: HttpRequest, front: Data<Front>) -> HttpResponse {
    if request.uri().path() == HEALTH {
        return HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok");
    }
    let site = host(&request).and_then(|name| front.routes.borrow().get(&name).cloned());
    match site {
        None => unknown_hostname(),
        Some(Shown { access, .. }) if !access.admits(&request) => {
            page(StatusCode::FORBIDDEN, "This site is protected, and this node cannot ask who you are yet.")
        }
        Some(Shown { index: None, .. }) => {
            page(StatusCode::SERVICE_UNAVAILABLE, "This site is on its way to this node.")
        }
        Some(Shown { index: Some(index), .. }) => show(&request, &front.cache, &index).await,
    }
}

/// The host name that is asked for, as host names are written in the routes. (The server itself refuses two.)
fn host(request: &HttpRequest) -> Option<String> {
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST)?.to_str().ok()?,
    };
    let name = host.split_once(':').map_or(host, |(name, _port)| name);
    Some(name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase())
}

async fn show(request: &HttpRequest, cache: &Cache, index: &Index) -> HttpResponse {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refusal = page(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are answered here.");
        refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    if index.worker && index.assets.is_empty() {
        return page(StatusCode::SERVICE_UNAVAILABLE, "This project is worker code, which this node does not run yet.");
    }
    let Some(path) = path::decode(request.uri().path()) else {
        return page(StatusCode::BAD_REQUEST, "The address is malformed.");
    };
    match index.find(&path) {
        Found::Asset(name, asset) => asset::answer(request, cache, name, asset).await,
        Found::Directory => directory(request),
        Found::Nothing => match index.not_found_page() {
            Found::Asset(name, asset) => asset::not_found(request, cache, name, asset).await,
            _ => page(StatusCode::NOT_FOUND, "There is nothing at this address."),
        },
    }
}

/// To the directory's own address, so that the relative links of its page lead into it.
fn directory(request: &HttpRequest) -> HttpResponse {
    let uri = request.uri();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HttpResponse::PermanentRedirect()
        .insert_header((LOCATION, format!("{}/{query}", uri.path())))
        .insert_header((CACHE_CONTROL, REVALIDATE))
        .finish()
}
