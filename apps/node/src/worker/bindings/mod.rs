//! The bindings: objects in `env` that the node implements.
//!
//! A binding is a service of the node on one socket, which all workers use. `workerd` adds two headers to each request:
//! a key that identifies the process, and the name of the binding. Worker code can neither read nor override them. So a
//! request needs no credential, and reaches only bindings and data of that project.
//!
//! Worker code sees the service itself (a `Fetcher`), or an object that our internal module builds from it. The module
//! receives the service as `env.service`; its default export returns the object.
//!
//! To add a binding, implement [`Binding`] in a file here, and list it in [`Bindings::new`]. `Part` in `environment`
//! has one variant per grant.

mod ai;
mod assets;
mod auth;
mod calls;
mod connections;
mod database;
mod email;
mod storage;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::X_CONTENT_TYPE_OPTIONS;
use actix_web::http::{ConnectionType, StatusCode};
use actix_web::middleware::DefaultHeaders;
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use futures_util::future::LocalBoxFuture;
use serde_json::json;

use super::folder::RunDir;
use crate::ai::Ai;
use crate::auth::Users;
use crate::contents::Contents;
use crate::environment::{Environment, Environments};
use crate::index::{Code, Index};
use crate::mail::Mailer;
use crate::pg::Pools;
use crate::random;
use crate::storage::Storage;
use ai::AiBinding;
use assets::Assets;
use auth::AuthBinding;
use calls::CallLimit;
use connections::ConnectionPermits;
use database::DatabaseBinding;
use email::EmailBinding;
use storage::StorageBinding;

pub use connections::ConnectionLimits;

/// The header that identifies the process. `workerd` overwrites any value that the code sends.
pub const KEY_HEADER: &str = "svc-worker-key";
/// The header that names the binding. `workerd` also overwrites this header if code sends it.
pub const BINDING_HEADER: &str = "svc-worker-binding";

const SERVERS: usize = 2;
/// The largest number of connections of all processes to one of the servers.
const MAX_CONNECTIONS: usize = 16 << 10;
/// How long an idle connection stays open. `workerd` closes its idle connections after 5 s. It must not use one that just
/// closed, so the time is longer.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// An object in `env`.
pub trait Binding: Send + Sync {
    /// Returns the name in `env`.
    fn name(&self) -> &'static str;

    /// Returns whether this code of the project has the binding. Otherwise, `env` does not contain its name.
    fn is_granted(&self, environment: &Environment, code: Option<&Code>) -> bool;

    /// Returns the source of the internal module that makes the object; `None` if code sees the service itself.
    fn module(&self) -> Option<&'static str>;

    /// Returns the largest number of requests of a process in flight. The limit is separate for each binding, so slow
    /// requests of one binding do not delay another.
    fn max_in_flight(&self) -> usize {
        calls::MAX_IN_FLIGHT
    }

    /// Handles a request of the object. Worker code that escapes from `workerd` can send any request here.
    fn handle<'a>(&'a self, call: BindingCall<'a>) -> LocalBoxFuture<'a, HttpResponse>;
}

/// A request of a process to a binding.
pub struct BindingCall<'a> {
    pub caller: Caller,
    pub request: &'a HttpRequest,
    pub payload: &'a mut Payload,
}

/// The process that sent a request.
pub struct Caller {
    /// The owner of the project at the start of the process, whose shares the calls use.
    pub owner: String,
    /// The project's id.
    pub project: String,
    /// The index of the bundle that the process runs.
    pub index: Arc<Index>,
    /// The current environment of the project. Its grants and quotas can be newer than the process.
    pub environment: Arc<Environment>,
    /// The environments of all projects, in which a long call checks that its grant still exists.
    pub environments: Arc<Environments>,
}

/// All bindings, and the processes that may use them.
pub struct Bindings {
    all: Vec<Box<dyn Binding>>,
    environments: Arc<Environments>,
    processes: RwLock<HashMap<String, Registered>>,
}

struct Registered {
    owner: String,
    project: String,
    index: Arc<Index>,
    /// The limits on the calls of a process, by the name of the binding.
    calls: HashMap<&'static str, Arc<CallLimit>>,
    connections: ConnectionLimits,
}

/// The key of a process, valid until this is dropped.
pub struct Registration {
    key: String,
    bindings: Arc<Bindings>,
}

impl Bindings {
    /// Creates the bindings of a node.
    pub fn new(
        environments: Arc<Environments>,
        contents: Arc<Contents>,
        storage: Option<Arc<Storage>>,
        databases: Option<Arc<Pools>>,
        ai: Arc<Ai>,
        mailer: Mailer,
        users: Arc<Users>,
    ) -> Arc<Self> {
        let all: Vec<Box<dyn Binding>> = vec![
            Box::new(Assets(contents)),
            Box::new(StorageBinding(storage)),
            Box::new(DatabaseBinding(databases)),
            Box::new(AiBinding(ai)),
            Box::new(EmailBinding(mailer)),
            Box::new(AuthBinding(users)),
        ];
        Arc::new(Self { all, environments, processes: RwLock::default() })
    }

    /// Returns the bindings of this code of a project with this environment.
    pub fn granted<'a>(
        &'a self,
        environment: &Environment,
        code: Option<&Code>,
    ) -> impl Iterator<Item = &'a dyn Binding> {
        self.all.iter().map(AsRef::as_ref).filter(move |binding| binding.is_granted(environment, code))
    }

    /// Registers a process under a new key.
    pub fn register(
        self: &Arc<Self>,
        owner: &str,
        project: &str,
        index: Arc<Index>,
        connections: ConnectionLimits,
    ) -> Registration {
        let key = random::id().simple().to_string();
        let limit = |binding: &dyn Binding| Arc::new(CallLimit::new(binding.max_in_flight()));
        let calls = self.all.iter().map(|binding| (binding.name(), limit(binding.as_ref()))).collect();
        let registered = Registered { owner: owner.to_owned(), project: project.to_owned(), index, calls, connections };
        self.processes.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), registered);
        Registration { key, bindings: Arc::clone(self) }
    }

    /// Applies `of` to the process that sent a request. Returns `None` if there is no such process.
    fn find_process<T>(&self, request: &HttpRequest, of: impl FnOnce(&Registered) -> T) -> Option<T> {
        let key = request.headers().get(KEY_HEADER)?.to_str().ok()?;
        self.processes.read().unwrap_or_else(PoisonError::into_inner).get(key).map(of)
    }

    fn caller(&self, Registered { owner, project, index, .. }: &Registered) -> Caller {
        // After its project was removed, a process keeps its assets until it ends.
        let environment = self.environments.get(project).map(|current| current.parts).unwrap_or_default();
        let environments = Arc::clone(&self.environments);
        let (owner, project) = (owner.clone(), project.clone());
        Caller { owner, project, index: Arc::clone(index), environment, environments }
    }

    fn find_binding(&self, request: &HttpRequest, caller: &Caller) -> Option<&dyn Binding> {
        let name = binding_name(request)?;
        self.granted(&caller.environment, caller.index.code.as_ref()).find(|binding| binding.name() == name)
    }
}

impl Registration {
    pub fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.bindings.processes.write().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

/// Starts the server of the bindings on the socket in `run`.
pub fn listen(run: &RunDir, bindings: Arc<Bindings>) -> io::Result<Server> {
    let bindings = Data::from(bindings);
    let app = move || {
        App::new()
            .app_data(Data::clone(&bindings))
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .default_service(web::to(handle))
    };
    Ok(HttpServer::new(app)
        .workers(SERVERS)
        .max_connections(MAX_CONNECTIONS)
        .keep_alive(KEEP_ALIVE)
        .on_connect(|_, data| {
            data.insert(ConnectionPermits::default());
        })
        .disable_signals()
        // If a worker disconnects, its call is dropped.
        .h1_allow_half_closed(false)
        .listen_uds(run.listen()?)?
        .run())
}

fn binding_name(request: &HttpRequest) -> Option<&str> {
    request.headers().get(BINDING_HEADER)?.to_str().ok()
}

async fn handle(request: HttpRequest, mut payload: Payload, bindings: Data<Bindings>) -> HttpResponse {
    let unknown =
        || refusal(StatusCode::FORBIDDEN, "not_granted", "Only the workers of this node may use its bindings.");
    let limits = |process: &Registered| {
        let calls = process.calls.get(binding_name(&request)?)?;
        Some((Arc::clone(calls), process.connections.admit(request.conn_data::<ConnectionPermits>()?)))
    };
    let Some((calls, is_admitted)) = bindings.find_process(&request, limits).flatten() else { return unknown() };
    let call = if is_admitted { calls.begin().await } else { None };
    let Some(call) = call else {
        let message = "Too many calls are in progress. Read or cancel the bodies of earlier results.";
        return refusal(StatusCode::TOO_MANY_REQUESTS, "too_many_calls", message);
    };
    // The call may have waited for its permit, so the environment is read only now.
    let caller = bindings.find_process(&request, |process| bindings.caller(process));
    let Some(caller) = caller else { return unknown() };
    let response = match bindings.find_binding(&request, &caller) {
        Some(binding) => binding.handle(BindingCall { caller, request: &request, payload: &mut payload }).await,
        None => error(StatusCode::FORBIDDEN, "not_granted", "The project no longer has this binding. Enable it again."),
    };
    calls::drain(&mut payload).await;
    calls::guard(response, call)
}

/// Creates the response for a call that is not admitted. It closes the connection, which may have no permits.
fn refusal(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    let mut response = error(status, code, message);
    response.head_mut().set_connection_type(ConnectionType::Close);
    response
}

/// Creates the response for an error of a binding. The binding's module throws it as an `Error` with this `code` and
/// `message`.
pub fn error(status: StatusCode, code: &str, message: &str) -> HttpResponse {
    HttpResponse::build(status).json(json!({ "code": code, "message": message }))
}
