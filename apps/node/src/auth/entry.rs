//! The requests to `/__svc/auth/*`.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use actix_web::http::header::{ALLOW, HeaderValue, LOCATION, RETRY_AFTER};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, HttpResponse};
use protocol::{Auth, AuthProvider, AuthProviderKind};
use serde::Deserialize;
use serde_json::json;
use settings::rate_limit_key;

use super::config::AuthConfig;
use super::cookies::SessionCookie;
use super::flow::Flows;
use super::page::{Action, Language, Message, Page, Texts, set_headers};
use super::permits::ExchangePermits;
use super::provider::{Provider, Providers};
use super::session::WorkerSession;
use super::store::{Pool, StoreError, lifetime};
use super::users::Users;
use crate::access::{AttemptLimiter, is_cross_origin_action};
use crate::environment::Environments;
use crate::origin::Origins;
use crate::page::with_retry_after;
use crate::path::local_path;

/// The paths of the sign-in.
const PATH_PREFIX: &str = "/__svc/auth/";
/// The limit on returns from providers per minute of one client address at one host. Each costs requests to a provider.
const MAX_CALLBACKS: u32 = 30;
/// The `Retry-After` of a page that says that sign-in is unavailable, in seconds.
const RETRY_SECONDS: u64 = 5;

/// The sign-in of all projects.
pub struct AuthEntry {
    pub(super) users: Arc<Users>,
    pub(super) providers: Providers,
    pub(super) flows: Flows,
    pub(super) permits: ExchangePermits,
    pub(super) origins: Arc<Origins>,
    environments: Arc<Environments>,
    callbacks: AttemptLimiter,
}

/// A request to a path of the sign-in.
pub(super) struct Visit<'a> {
    pub entry: &'a AuthEntry,
    pub request: &'a HttpRequest,
    /// The requested host, without a port.
    pub host: &'a str,
    /// The project's id.
    pub project: &'a str,
    pub auth: Arc<Auth>,
    pub texts: &'static Texts,
    language: Language,
}

#[derive(Deserialize)]
struct Next {
    #[serde(default)]
    next: String,
}

impl AuthEntry {
    /// Creates the clients of the providers. `credential` is the node's, from which a key is derived.
    ///
    /// # Errors
    /// Returns an error if TLS or the key cannot be set up.
    pub fn new(
        config: &AuthConfig,
        credential: &[u8],
        users: Arc<Users>,
        environments: Arc<Environments>,
        origins: Arc<Origins>,
    ) -> anyhow::Result<Self> {
        let (providers, flows) = (Providers::new(config)?, Flows::new(credential)?);
        let (permits, callbacks) = (ExchangePermits::new(), AttemptLimiter::new(MAX_CALLBACKS));
        Ok(Self { users, providers, flows, permits, origins, environments, callbacks })
    }

    /// Returns the response to a request to a path of the sign-in. Returns `None` for other paths, and for projects
    /// without app user auth.
    pub async fn respond(&self, request: &HttpRequest, host: &str, project: &str) -> Option<HttpResponse> {
        let path = request.uri().path().strip_prefix(PATH_PREFIX)?;
        let auth = self.environments.auth(project)?;
        let language = Language::of(request);
        let texts = Texts::of(language);
        Some(Visit { entry: self, request, host, project, auth, texts, language }.respond(path).await)
    }

    /// Returns the session of a request to worker code; `None` for projects without app user auth, and for actions that
    /// a page of another origin caused.
    pub fn worker_session(&self, request: &HttpRequest, project: &str) -> Option<WorkerSession> {
        let auth = self.environments.auth(project)?;
        if is_cross_origin_action(request, self.origins.scheme(request)) {
            return None;
        }
        self.users.worker_session(request, project, &auth, self.origins.is_https(request))
    }
}

impl Visit<'_> {
    async fn respond(&self, path: &str) -> HttpResponse {
        const READ: [Method; 2] = [Method::GET, Method::HEAD];
        let (allowed, provider): (&[Method], _) = match path.split_once('/') {
            None if matches!(path, "login" | "session") => (&READ, None),
            None if path == "logout" => (&[Method::POST], None),
            Some(("login" | "callback", name)) if !name.contains('/') => (&[Method::GET], Some(name)),
            _ => return self.message(StatusCode::NOT_FOUND, &self.texts.not_found, None, self.to_site()),
        };
        if !allowed.contains(self.request.method()) {
            let mut response =
                self.message(StatusCode::METHOD_NOT_ALLOWED, &self.texts.wrong_request, None, self.to_site());
            let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
            if let Ok(allowed) = HeaderValue::from_str(&allowed) {
                response.headers_mut().insert(ALLOW, allowed);
            }
            return response;
        }
        match (path, provider) {
            ("session", _) => self.session().await,
            ("logout", _) => self.logout().await,
            ("login", _) => self.login(),
            (_, Some(name)) => match self.provider(name) {
                Some((registered, provider)) if path.starts_with("login/") => self.begin(registered, provider),
                Some((registered, provider)) => self.callback(registered, provider).await,
                None => {
                    let unknown = &self.texts.unknown_provider;
                    self.message(StatusCode::NOT_FOUND, unknown, None, self.retry(self.next()))
                }
            },
            (_, None) => self.message(StatusCode::NOT_FOUND, &self.texts.not_found, None, self.to_site()),
        }
    }

    /// Returns the providers that the project registered and the node reaches.
    pub(super) fn providers(&self) -> impl Iterator<Item = (&AuthProvider, &Provider)> {
        let find = |kind| self.auth.providers.iter().find(move |registered| registered.provider == kind);
        AuthProviderKind::ALL.into_iter().filter_map(move |kind| Some((find(kind)?, self.entry.providers.get(kind)?)))
    }

    fn provider(&self, name: &str) -> Option<(&AuthProvider, &Provider)> {
        self.providers().find(|(registered, _)| registered.provider.as_str() == name)
    }

    /// Returns the connections of the project.
    pub(super) fn pool(&self) -> Arc<Pool> {
        self.entry.users.pool(self.project)
    }

    pub(super) fn https(&self) -> bool {
        self.entry.origins.is_https(self.request)
    }

    /// Returns the path to return to after the sign-in.
    pub(super) fn next(&self) -> String {
        let query = serde_urlencoded::from_str(self.request.query_string());
        let Next { next } = query.unwrap_or(Next { next: String::new() });
        local_path(&next).to_owned()
    }

    /// Returns the redirect URI of a provider at the requested host (RFC 6749 section 3.1.2), if the addresses of sites
    /// are known. The provider compares it with the registered one, so it does not depend on the connection.
    pub(super) fn redirect_uri(&self, provider: AuthProviderKind) -> Option<String> {
        let site = self.entry.origins.site_url(self.host)?;
        Some(format!("{site}{PATH_PREFIX}callback/{}", provider.as_str()))
    }

    async fn session(&self) -> HttpResponse {
        let mut response = HttpResponse::Ok();
        let response = set_headers(&mut response);
        let Some(cookie) = SessionCookie::of(self.request, self.https()) else {
            return response.json(json!({ "user": null }));
        };
        match self.entry.users.resolve(self.project, &self.auth, &cookie.digest()).await {
            Ok(Some(user)) => {
                if let Some(renewal) = cookie.renewal(&self.auth, self.https()) {
                    response.cookie(renewal);
                }
                response.json(json!({ "user": user }))
            }
            Ok(None) => response.cookie(SessionCookie::removal(self.https())).json(json!({ "user": null })),
            Err(error) => {
                self.record_failure(error);
                response.status(StatusCode::SERVICE_UNAVAILABLE).insert_header((RETRY_AFTER, RETRY_SECONDS)).json(
                    json!({ "code": "auth_unavailable", "message": "The users are unavailable. Try again in a moment." }),
                )
            }
        }
    }

    async fn logout(&self) -> HttpResponse {
        if is_cross_origin_action(self.request, self.entry.origins.scheme(self.request)) {
            return self.message(StatusCode::FORBIDDEN, &self.texts.cross_origin, None, self.to_site());
        }
        if let Some(cookie) = SessionCookie::of(self.request, self.https()) {
            match self.pool().end_session(&cookie.digest()).await {
                Ok(true) => self.entry.users.metrics.count_logout(),
                Ok(false) => {}
                Err(error) => {
                    self.record_failure(error);
                    return self.unavailable(self.to_site());
                }
            }
        }
        let mut response = HttpResponse::SeeOther();
        set_headers(&mut response).insert_header((LOCATION, "/")).cookie(SessionCookie::removal(self.https())).finish()
    }

    /// Returns the client address, as the limits count it.
    pub(super) fn client(&self) -> IpAddr {
        rate_limit_key(self.entry.origins.of(self.request).client)
    }

    /// Counts a return from a provider. Returns a page if there are too many.
    pub(super) fn limit(&self) -> Option<HttpResponse> {
        let wait = self.entry.callbacks.record(self.client(), self.host, Instant::now()).err()?;
        let response = self.message(StatusCode::TOO_MANY_REQUESTS, &self.texts.too_many, None, Vec::new());
        Some(with_retry_after(response, wait))
    }

    /// Returns a page with the brand of the project. `name` replaces `{name}` in the text.
    pub(super) fn message(
        &self,
        status: StatusCode,
        Message(title, text): &Message,
        name: Option<&str>,
        actions: Vec<Action>,
    ) -> HttpResponse {
        let text = text.replace("{name}", name.unwrap_or_default());
        self.page((*title).to_owned(), text, actions).respond(status)
    }

    pub(super) fn page(&self, title: String, text: String, actions: Vec<Action>) -> Page<'_> {
        Page { language: self.language, brand: &self.auth.brand, host: self.host, title, text, actions }
    }

    /// Returns the page for a database that is away or in an operation.
    pub(super) fn unavailable(&self, actions: Vec<Action>) -> HttpResponse {
        let mut response = self.message(StatusCode::SERVICE_UNAVAILABLE, &self.texts.unavailable, None, actions);
        response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS.into());
        response
    }

    /// Returns the link to the sign-in page.
    pub(super) fn retry(&self, next: String) -> Vec<Action> {
        vec![Action { label: self.texts.try_again.to_owned(), href: login_href("", &next) }]
    }

    fn to_site(&self) -> Vec<Action> {
        vec![Action { label: self.texts.to_site.to_owned(), href: "/".to_owned() }]
    }

    /// Returns the name of a provider for the visitor.
    pub(super) fn name<'a>(&self, provider: &'a Provider) -> &'a str {
        provider.name().unwrap_or_else(|| self.texts.name(provider.kind()))
    }

    /// Returns the lifetime of the session cookie.
    pub(super) fn lifetime(&self) -> std::time::Duration {
        lifetime(&self.auth)
    }

    pub(super) fn record_failure(&self, error: StoreError) {
        self.entry.users.record_failure(self.project, error);
    }
}

/// Returns the address of the sign-in page, or of the sign-in with a provider (`/<provider>`), after which the visitor
/// returns to the path `next`.
pub(super) fn login_href(provider: &str, next: &str) -> String {
    let query = serde_urlencoded::to_string([("next", next)]).unwrap_or_default();
    format!("{PATH_PREFIX}login{provider}?{query}")
}
