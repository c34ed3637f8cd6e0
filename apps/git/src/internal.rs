//! The internal listener: browse requests of the control plane, and the metrics.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

use actix_web::dev::Server;
use actix_web::http::StatusCode;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use daemon::show_metrics;
use ring::digest::{SHA256, digest};
use semaphores::KeyedSemaphores;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::browse::{BrowseError, Browser, Histories, HistoryPart, Refs};
use crate::metrics::Metrics;
use crate::repository::{Repositories, Use};

/// The maximum number of concurrent browse requests. Others wait.
const MAX_BROWSES: usize = 16;
/// The maximum number of concurrent browse requests per organization, so that one with slow requests does not delay the
/// others.
const MAX_BROWSES_PER_ORG: usize = 4;
/// The maximum number of concurrent browse requests per user. It is lower than that of an organization, so that a user
/// who reads its public repositories does not delay its members.
const MAX_BROWSES_PER_USER: usize = 2;

/// The state of the listener.
#[derive(Clone)]
struct State {
    repositories: Repositories,
    metrics: Metrics,
    /// The `Authorization` header that the control plane sends.
    authorization: Arc<str>,
    permits: BrowsePermits,
    histories: Histories,
}

/// The permits of browse requests. Clones share them.
#[derive(Clone)]
struct BrowsePermits {
    per_user: Arc<KeyedSemaphores<String>>,
    per_org: Arc<KeyedSemaphores<String>>,
    shared: Arc<Semaphore>,
}

impl BrowsePermits {
    fn new() -> Self {
        let [per_user, per_org] =
            [MAX_BROWSES_PER_USER, MAX_BROWSES_PER_ORG].map(|permits| Arc::new(KeyedSemaphores::new(permits)));
        Self { per_user, per_org, shared: Arc::new(Semaphore::new(MAX_BROWSES)) }
    }

    /// Waits for a permit of the user, then for one of the organization, and then for a shared one.
    async fn acquire(&self, user: String, org: String) -> Result<[OwnedSemaphorePermit; 3], AcquireError> {
        let of_user = self.per_user.of(user).acquire_owned().await?;
        let of_org = self.per_org.of(org).acquire_owned().await?;
        let shared = Arc::clone(&self.shared).acquire_owned().await?;
        Ok([of_user, of_org, shared])
    }
}

/// The parameters of a browse request.
#[derive(Debug, Deserialize)]
struct Query {
    /// The id of the user who reads.
    user: String,
    /// The slug of the organization.
    org: String,
    #[serde(default, rename = "ref")]
    name: String,
    #[serde(default)]
    path: String,
    start: Option<String>,
    #[serde(default)]
    skip: u32,
    #[serde(default)]
    limit: usize,
}

/// Starts a server for the control plane, which authenticates with this secret.
pub fn listen(
    address: SocketAddr,
    secret: &str,
    repositories: Repositories,
    metrics: Metrics,
) -> io::Result<(SocketAddr, Server)> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let authorization = format!("Bearer {secret}").into();
    let (permits, histories) = (BrowsePermits::new(), Histories::default());
    let state = State { repositories, metrics, authorization, permits, histories };
    let app = move || {
        App::new()
            .app_data(Data::new(state.clone()))
            .app_data(Data::new(state.metrics.registry()))
            .route("/metrics", web::get().to(show_metrics))
            .route("/internal/v1/repositories/{id}/{operation}", web::get().to(browse))
    };
    Ok((address, HttpServer::new(app).workers(2).tcp_nodelay(true).disable_signals().listen(listener)?.run()))
}

async fn browse(
    request: HttpRequest,
    path: web::Path<(String, String)>,
    query: web::Query<Query>,
    state: Data<State>,
) -> HttpResponse {
    let given = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
    // The digests are compared, so that the time of the comparison does not depend on the secret.
    if digest(&SHA256, given).as_ref() != digest(&SHA256, state.authorization.as_bytes()).as_ref() {
        return refuse(StatusCode::UNAUTHORIZED, "unauthorized");
    }
    let ((id, operation), query) = (path.into_inner(), query.into_inner());
    let Query { user, org, name, path, start, skip, limit } = query;
    let at = (user, org, id.as_str());
    let started = Instant::now();
    let response = match operation.as_str() {
        "refs" => respond(&state, at, |browser| browser.refs(), Some(Refs::default())).await,
        "tree" => respond(&state, at, move |browser| browser.tree(&name, &path), None).await,
        "blob" => respond(&state, at, move |browser| browser.blob(&name, &path), None).await,
        "commits" => {
            let (git, histories) = (state.repositories.git().clone(), state.histories.clone());
            let part = HistoryPart { start, skip, limit };
            let read = move |browser: &Browser| browser.commits(&git, &histories, &name, &path, part);
            respond(&state, at, read, None).await
        }
        _ => return refuse(StatusCode::NOT_FOUND, "not_found"),
    };
    state.metrics.browse(&operation, started.elapsed());
    response
}

/// Responds with the result of a user's `read` on the repository of an organization. For a repository that was never
/// accessed, responds with `empty`.
async fn respond<T: Serialize + Send + 'static>(
    state: &State,
    (user, org, id): (String, String, &str),
    read: impl FnOnce(&Browser) -> Result<T, BrowseError> + Send + 'static,
    empty: Option<T>,
) -> HttpResponse {
    let read = async {
        let permits = state.permits.acquire(user, org).await.map_err(anyhow::Error::from)?;
        let Some(repository) = state.repositories.find(id, Use::Read).await? else {
            return empty.ok_or(BrowseError::NoRef);
        };
        // The read continues even if the control plane abandons the request. So the permits are held until the read ends.
        let read = move || {
            let _permits = permits;
            read(&Browser::open(&repository.path)?)
        };
        spawn_blocking(read).await.map_err(anyhow::Error::from)?
    };
    match read.await {
        Ok(found) => HttpResponse::Ok().json(found),
        Err(BrowseError::NoRef) => refuse(StatusCode::NOT_FOUND, "no_ref"),
        Err(BrowseError::NoPath) => refuse(StatusCode::NOT_FOUND, "no_path"),
        Err(BrowseError::Internal(error)) => {
            tracing::error!(error = format!("{error:#}"), repository = id, "cannot read a repository");
            refuse(StatusCode::INTERNAL_SERVER_ERROR, "internal")
        }
    }
}

fn refuse(status: StatusCode, code: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "code": code }))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn user_or_organization_does_not_use_all_permits() {
        let permits = BrowsePermits::new();
        let acquire = |user: usize, org: usize| {
            permits.acquire(user.to_string(), org.to_string()).now_or_never().map(Result::unwrap)
        };
        let mut of_one: Vec<_> = (0..MAX_BROWSES_PER_USER).map(|_| acquire(0, 0).unwrap()).collect();
        // A user's further requests wait in all organizations. They do not delay other users.
        assert!(acquire(0, 0).is_none() && acquire(0, 1).is_none());
        of_one.extend((MAX_BROWSES_PER_USER..MAX_BROWSES_PER_ORG).map(|user| acquire(user, 0).unwrap()));
        // Requests that wait for the organization's permit do not delay other organizations.
        let waiting = std::pin::pin!(permits.acquire("1".to_owned(), "0".to_owned()));
        assert!(waiting.now_or_never().is_none());
        assert!(acquire(1, 1).is_some());
        let _others: Vec<_> = (MAX_BROWSES_PER_ORG..MAX_BROWSES).map(|org| acquire(org, org).unwrap()).collect();
        assert!(acquire(1, 1).is_none());
        drop(of_one);
        assert!(acquire(0, 0).is_some());
    }
}
