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
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::browse::{BrowseError, Browser, Histories, Refs};
use crate::metrics::Metrics;
use crate::repository::{Repositories, Use};

/// The maximum number of concurrent browse requests. Others wait.
const MAX_BROWSES: usize = 16;

/// The state of the listener.
#[derive(Clone)]
struct State {
    repositories: Repositories,
    metrics: Metrics,
    /// The `Authorization` header that the control plane sends.
    authorization: Arc<str>,
    browses: Arc<Semaphore>,
    histories: Histories,
}

/// The parameters of a browse request.
#[derive(Debug, Default, Deserialize)]
struct Query {
    #[serde(default, rename = "ref")]
    name: String,
    #[serde(default)]
    path: String,
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
    let (browses, histories) = (Arc::new(Semaphore::new(MAX_BROWSES)), Histories::default());
    let state = State { repositories, metrics, authorization, browses, histories };
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
    let (id, operation) = path.into_inner();
    let started = Instant::now();
    let response = match operation.as_str() {
        "refs" => respond(&state, &id, |browser| browser.refs(), Some(Refs::default())).await,
        "tree" => respond(&state, &id, move |browser| browser.tree(&query.name, &query.path), None).await,
        "blob" => respond(&state, &id, move |browser| browser.blob(&query.name, &query.path), None).await,
        "commits" => {
            let (git, histories) = (state.repositories.git().clone(), state.histories.clone());
            let read =
                move |browser: &Browser| browser.commits(&git, &histories, &query.name, &query.path, query.limit);
            respond(&state, &id, read, None).await
        }
        _ => return refuse(StatusCode::NOT_FOUND, "not_found"),
    };
    state.metrics.browse(&operation, started.elapsed());
    response
}

/// Responds with the result of `read`. For a repository that was never accessed, responds with `empty`.
async fn respond<T: Serialize + Send + 'static>(
    state: &State,
    id: &str,
    read: impl FnOnce(&Browser) -> Result<T, BrowseError> + Send + 'static,
    empty: Option<T>,
) -> HttpResponse {
    let read = async {
        let permit = Arc::clone(&state.browses).acquire_owned().await.map_err(anyhow::Error::from)?;
        let Some(repository) = state.repositories.find(id, Use::Read).await? else {
            return empty.ok_or(BrowseError::NoRef);
        };
        // The read continues even if the control plane abandons the request. So the permit is held until the read ends.
        let read = move || {
            let _permit = permit;
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
