//! The front: the HTTP server for visitors of the deployed projects, over plain http and TLS.

use std::borrow::Cow;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::{
    ALLOW, CACHE_CONTROL, ContentType, HeaderValue, LOCATION, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::http::{Method, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse};
use protocol::AccessMode;
use settings::rate_limit_key;
use tls::{CertificateStore, Handshaker, HttpSettings, Presented};
use tokio::sync::watch;

use crate::access::AccessGate;
use crate::asset::REVALIDATE;
use crate::auth::AuthEntry;
use crate::connection::limit;
use crate::contents::Contents;
use crate::index::{Entry, Index};
use crate::origin::{Origins, authority};
use crate::page::{page, unknown_hostname_error};
use crate::path;
use crate::routes::{Routes, SiteRoute};
use crate::serve::serve_assets;
use crate::shared_cache::make_private;
use crate::tls::{ChallengeRequest, Challenges, challenge_token};
use crate::worker::headers::is_websocket;
use crate::worker::proxy;

const NOSNIFF: HeaderValue = HeaderValue::from_static("nosniff");
/// The methods that sites can support. Worker code can also support others.
const SERVER_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The health check, available on every host.
const HEALTH: &str = "/__svc/node/health";

/// How long an idle connection stays open: longer than those of a proxy, such as 60 s for nginx. With HTTP/2, slow visitors
/// need this time to respond to a ping during a download.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// The state that requests share.
pub struct Front {
    routes: watch::Receiver<Arc<Routes>>,
    contents: Arc<Contents>,
    gate: AccessGate,
    auth: AuthEntry,
    origins: Arc<Origins>,
    challenges: Challenges,
    tls: Option<TlsFront>,
}

/// The TLS listener, to which visitors of plain http are redirected.
pub struct TlsFront {
    pub port: u16,
    pub store: Arc<CertificateStore>,
}

impl Front {
    /// Creates a front that serves each request from the current `routes`.
    pub const fn new(
        routes: watch::Receiver<Arc<Routes>>,
        contents: Arc<Contents>,
        gate: AccessGate,
        auth: AuthEntry,
        origins: Arc<Origins>,
        challenges: Challenges,
        tls: Option<TlsFront>,
    ) -> Self {
        Self { routes, contents, gate, auth, origins, challenges, tls }
    }

    /// Returns the redirect to https, if the request came over plain http and its host has an
    /// unexpired certificate.
    fn redirect_to_https(&self, request: &HttpRequest, host: &str) -> Option<HttpResponse> {
        let TlsFront { port, store } = self.tls.as_ref()?;
        if self.origins.is_https(request) || !store.contains_unexpired(host) {
            return None;
        }
        // A visitor at the default port of http uses the default port of https.
        let is_default = authority(request).is_none_or(|authority| !authority.contains(':')) || *port == 443;
        let port = if is_default { String::new() } else { format!(":{port}") };
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let mut response = HttpResponse::PermanentRedirect();
        // A cached redirect would outlive the certificate.
        response
            .insert_header((LOCATION, format!("https://{host}{port}{path}")))
            .insert_header((CACHE_CONTROL, REVALIDATE));
        Some(response.finish())
    }

    /// Returns whether the host has a certificate other than the one that the client verified (RFC 9110 section 15.5.20).
    fn is_misdirected(&self, request: &HttpRequest, host: &str) -> bool {
        let is_other = request.conn_data::<Presented>().is_some_and(|presented| !presented.is_valid_for(host));
        is_other && self.tls.as_ref().is_some_and(|tls| tls.store.find(host).is_some())
    }
}

/// Serves the listeners of plain http and https.
pub fn serve(
    listeners: (TcpListener, Option<(TcpListener, Handshaker)>),
    write_timeout: Duration,
    front: Front,
) -> io::Result<Server> {
    let front = Data::new(front);
    let app = move || {
        let handle = move |request: HttpRequest, payload: Payload, front: Data<Front>| async move {
            limit(&request, write_timeout, respond(&request, payload, &front)).await
        };
        App::new()
            .app_data(Data::clone(&front))
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, NOSNIFF)))
            .default_service(web::to(handle))
    };
    // If the visitor disconnects, the request is dropped, which also ends the calls of its worker code.
    let settings =
        HttpSettings { keep_alive: KEEP_ALIVE, write_timeout, allows_half_closed: false, client_key: rate_limit_key };
    tls::serve(Server::build(), listeners, settings, app, reject)
}

/// Returns the response to a request that is not valid HTTP/1.
fn reject(status: StatusCode) -> HttpResponse {
    let text = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "The browser sent too many headers. Delete the cookies of this site."
        }
        StatusCode::REQUEST_TIMEOUT => "The request arrived too slowly. Try again.",
        status if status.is_server_error() => "The server could not process the request. Try again in a moment.",
        _ => "The server could not read the request.",
    };
    let mut response = page(status, text);
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, NOSNIFF);
    response
}

async fn respond(request: &HttpRequest, payload: Payload, front: &Front) -> HttpResponse {
    if request.uri().path() == HEALTH {
        return HttpResponse::Ok().content_type(ContentType::plaintext()).body("ok");
    }
    // The request is for the server as a whole (RFC 9110 section 9.3.7). It has no path that a redirect or a site could use.
    if request.method() == Method::OPTIONS && request.uri().path() == "*" {
        return HttpResponse::NoContent().insert_header((ALLOW, SERVER_METHODS)).finish();
    }
    let Some(host) = host(request) else { return unknown_hostname_error(request) };
    let site = front.routes.borrow().of_hostname(&host);
    let challenge = challenge_token(request);
    if let Some(token) = challenge {
        let client = rate_limit_key(front.origins.of(request).client);
        let challenge = ChallengeRequest { token, host: &host, is_routed: site.is_some(), client };
        if let Some(response) = front.challenges.respond(challenge).await {
            return response;
        }
    }
    let Some(site) = site else { return unknown_hostname_error(request) };
    if front.is_misdirected(request, &host) {
        return page(StatusCode::MISDIRECTED_REQUEST, "This connection is for another site. Try again.");
    }
    // A project may answer challenges itself.
    if challenge.is_none()
        && let Some(redirect) = front.redirect_to_https(request, &host)
    {
        return redirect;
    }
    let mut response = respond_from(&site, request, payload, front, &host).await;
    // Not over plain http (RFC 6797 section 7.2). The header of worker code takes precedence.
    if let Some(hsts) = site.hsts.get(&*host)
        && front.origins.is_https(request)
        && !response.headers().contains_key(STRICT_TRANSPORT_SECURITY)
    {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
    response
}

/// Responds from a site, after its access gate.
async fn respond_from(
    site: &SiteRoute,
    request: &HttpRequest,
    payload: Payload,
    front: &Front,
    host: &str,
) -> HttpResponse {
    let payload = match front.gate.authorize(request, payload, host, &site.project, &site.access).await {
        Ok(payload) => payload,
        Err(response) => return response,
    };
    if let Some(response) = front.auth.respond(request, host, &site.project).await {
        return response;
    }
    let (mut response, session) = match &site.index {
        None => (page(StatusCode::SERVICE_UNAVAILABLE, "This site is being deployed. Try again in a minute."), None),
        Some(index) if is_for_code(request, index) => {
            let origin = front.origins.of(request);
            let session = front.auth.worker_session(request, &site.project);
            let worker = site.worker.as_ref().map_err(|reason| *reason);
            (proxy::forward_request(request, payload, origin, session.as_ref(), worker).await, session)
        }
        Some(index) => (serve_assets(request, &front.contents, index).await, None),
    };
    if site.access.mode != AccessMode::Public {
        make_private(&mut response);
    }
    if let Some(session) = session {
        session.renew(&mut response);
    }
    response
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

/// Returns whether worker code handles the request: the bundle has code, and the request asks for a WebSocket or no asset
/// matches.
fn is_for_code(request: &HttpRequest, index: &Index) -> bool {
    let is_asset = || {
        let path = path::decode(request.uri().path());
        path.is_some_and(|path| !matches!(index.find(&path), Entry::Missing))
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD) && !is_websocket(request.headers());
    index.code.is_some() && !(is_read && is_asset())
}
