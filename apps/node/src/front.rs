//! The front: what visitors of the deployed projects talk to.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::http::header::{CACHE_CONTROL, ContentType, HOST, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use protocol::AccessMode;
use tokio::sync::watch;

use crate::access::Doors;
use crate::asset::REVALIDATE;
use crate::contents::Contents;
use crate::index::{Found, Index};
use crate::origin::Origins;
use crate::page::{page, unknown_hostname};
use crate::path;
use crate::routes::Routes;
use crate::show::show;
use crate::worker::proxy;

/// The same for what is not for everybody: no cache between may keep it.
const PRIVATE: &str = "private, max-age=0, must-revalidate";

/// Answers on every host, for whoever waits for the node to come up.
const HEALTH: &str = "/__svc/node/health";

/// What answering takes.
pub struct Front {
    routes: watch::Receiver<Arc<Routes>>,
    contents: Arc<Contents>,
    doors: Doors,
    origins: Arc<Origins>,
}

impl Front {
    /// A front that shows what `routes` holds at the moment of each request.
    pub const fn new(
        routes: watch::Receiver<Arc<Routes>>,
        contents: Arc<Contents>,
        doors: Doors,
        origins: Arc<Origins>,
    ) -> Self {
        Self { routes, contents, doors, origins }
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

async fn answer(request: HttpRequest, payload: Payload, front: Data<Front>) -> HttpResponse {
    if request.uri().path() == HEALTH {
        return HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok");
    }
    let Some(host) = host(&request) else { return unknown_hostname() };
    let site = front.routes.borrow().get(host.as_ref()).cloned();
    let Some(site) = site else { return unknown_hostname() };
    let payload = match front.doors.pass(&request, payload, &host, &site.project, &site.access).await {
        Ok(payload) => payload,
        Err(answer) => return answer,
    };
    match &site.index {
        None => page(StatusCode::SERVICE_UNAVAILABLE, "This site is on its way to this node."),
        Some(index) if is_for_code(&request, index) => {
            proxy::answer(&request, payload, front.origins.of(&request), site.worker.as_ref()).await
        }
        Some(index) => {
            let mut answer = show(&request, &front.contents, index).await;
            if site.access.mode != AccessMode::Public
                && answer.headers().get(CACHE_CONTROL).is_some_and(|it| it == REVALIDATE)
            {
                answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(PRIVATE));
            }
            answer
        }
    }
}

/// The host name that is asked for, as host names are written in the routes. (The server itself refuses two.)
fn host(request: &HttpRequest) -> Option<Cow<'_, str>> {
    let host = match request.uri().authority() {
        Some(authority) => authority.as_str(),
        None => request.headers().get(HOST)?.to_str().ok()?,
    };
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    if !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_lowercase = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if is_lowercase { Cow::Borrowed(name) } else { Cow::Owned(name.to_ascii_lowercase()) })
}

/// Where there is code, it answers all that is no asset.
fn is_for_code(request: &HttpRequest, index: &Index) -> bool {
    let is_asset = || {
        let path = path::decode(request.uri().path());
        path.is_some_and(|path| !matches!(index.find(&path), Found::Nothing))
    };
    index.code.is_some() && !(matches!(*request.method(), Method::GET | Method::HEAD) && is_asset())
}
