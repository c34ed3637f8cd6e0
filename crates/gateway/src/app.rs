//! The two actix applications: their middleware, and the data that their routes use. A load shedder precedes the public
//! one.

use std::sync::Arc;

use actix_http::Request;
use actix_service::{IntoServiceFactory as _, Service};
use actix_web::body::BoxBody;
use actix_web::dev::{AppConfig, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, Error, HttpResponse};
use kernel::ClockRng;
use prometheus::Registry;
use store::Store;

use crate::config::Config;
use crate::http::{
    BodyMemory, Collisions, ConcurrencyLimit, LoadShedder, NodeWaitLimiter, Shutdown, StaticResponses, UploadLimiter,
    WriteLimiter, cors, guard, reject_malformed, request_telemetry, shed_load,
};
use crate::limits::Limiters;
use crate::readiness::Readiness;
use crate::routing::Routing;
use crate::v1::Contexts;

/// The maximum number of concurrent requests of nodes. They share the connections of background jobs, which must not
/// wait behind more of them. Long polls do not count while they wait.
const MAX_INTERNAL_REQUESTS: usize = 64;

/// The memory of the large bodies of the public listener, in bytes. The largest body needs half of a share. Together
/// with the memory below, 80 MiB of parts of uploads, eight zone files of about 80 MB each, and 256 MiB of contents of
/// repositories, it fits into the `MemoryMax` of `svc-server.service`.
const BODY_MEMORY_BYTES: usize = 64 << 20;

/// The memory of the large bodies of nodes, in bytes. The largest body needs half of it.
const INTERNAL_BODY_MEMORY_BYTES: usize = 128 << 20;

/// An application factory.
pub trait AppFactory:
    ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>
{
}

impl<T> AppFactory for T where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>
{
}

/// The dependencies of the routes. A process creates them once; every part is cheap to clone.
#[derive(Clone)]
pub struct Services {
    routing: Arc<Routing>,
    static_responses: Data<StaticResponses>,
    config: Data<Config>,
    clock_rng: Data<ClockRng>,
    store: Data<Store>,
    contexts: Contexts,
    limiters: Data<Limiters>,
    concurrency_limit: Data<ConcurrencyLimit>,
    internal_concurrency_limit: Data<ConcurrencyLimit>,
    upload_limiter: Data<UploadLimiter>,
    body_memory: Data<BodyMemory>,
    internal_body_memory: Data<BodyMemory>,
    node_wait_limiter: Data<NodeWaitLimiter>,
    shutdown: Data<Shutdown>,
    plan_limits: Data<kernel::Limits>,
    abuse_limits: Data<kernel::AbuseLimits>,
    write_limiter: Data<WriteLimiter>,
    readiness: Data<Readiness>,
    registry: Data<Registry>,
}

impl Services {
    /// Builds the shared state, and the routers if this process has none for these sign-in methods.
    ///
    /// # Errors
    /// Returns the collisions between the routes of a listener.
    pub fn new(
        config: Config,
        plan_limits: kernel::Limits,
        abuse_limits: kernel::AbuseLimits,
        store: Store,
        contexts: Contexts,
        registry: Registry,
    ) -> Result<Self, Collisions> {
        let routing = Routing::shared(config.sign_ins)?;
        let (connections, pools) = (store.status().max, store.pool_count());
        let concurrency_limit = ConcurrencyLimit::new(config.max_concurrent_requests, connections, pools)
            .with_max_wait(config.max_waits.connection);
        Ok(Self {
            static_responses: Data::new(StaticResponses::of(routing.reference.routes())),
            routing,
            limiters: Data::new(Limiters::new(config.rate_limits, store.clock_rng().clone())),
            upload_limiter: Data::new(UploadLimiter::default()),
            body_memory: Data::new(BodyMemory::public(BODY_MEMORY_BYTES)),
            internal_body_memory: Data::new(BodyMemory::internal(INTERNAL_BODY_MEMORY_BYTES)),
            node_wait_limiter: Data::new(NodeWaitLimiter::default()),
            shutdown: Data::new(Shutdown::default()),
            plan_limits: Data::new(plan_limits),
            abuse_limits: Data::new(abuse_limits),
            write_limiter: Data::new(WriteLimiter::new(config.max_waits.write_permit)),
            concurrency_limit: Data::new(concurrency_limit),
            internal_concurrency_limit: Data::new(ConcurrencyLimit::new(MAX_INTERNAL_REQUESTS, connections, 1)),
            readiness: Data::new(Readiness::default()),
            config: Data::new(config),
            clock_rng: Data::new(store.clock_rng().clone()),
            store: Data::new(store),
            contexts,
            registry: Data::new(registry),
        })
    }

    /// Returns the database, for background jobs.
    #[must_use]
    pub fn store(&self) -> Store {
        self.store.as_ref().clone()
    }

    /// Adapts the concurrency limit of the public listener to the load. Never completes.
    pub fn adapt_concurrency_limit(&self) -> impl Future<Output = ()> + Send + use<> {
        ConcurrencyLimit::adapt_to(self.concurrency_limit.clone(), self.store.clone())
    }

    /// Returns the shutdown of the process, which ends the requests that wait for nodes.
    #[must_use]
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.as_ref().clone()
    }

    /// Returns the rate limits, for the background jobs that remove idle callers.
    #[must_use]
    pub fn limiters(&self) -> Arc<Limiters> {
        self.limiters.clone().into_inner()
    }
}

/// Returns the service of the public listener. Each worker thread has its own.
pub fn public_service(
    services: &Services,
) -> impl ServiceFactory<
    Request,
    Config = AppConfig,
    Response = HttpResponse,
    Error = Error,
    InitError = (),
    Service: Service<Request, Future: 'static> + 'static,
    Future: 'static,
> + use<> {
    let shedder = LoadShedder::new(
        services.concurrency_limit.clone(),
        services.shutdown.clone(),
        services.static_responses.clone(),
        &services.config,
        services.routing.public.error_formats(),
    );
    shed_load(shedder, public_app(services).into_factory())
}

/// Returns the renderer of the responses to requests that the public service does not receive.
pub fn rejections(services: &Services) -> impl Fn(StatusCode) -> HttpResponse + Clone + Send + 'static + use<> {
    let (config, clock_rng) = (services.config.clone(), services.clock_rng.clone());
    move |status| reject_malformed(status, &config, &clock_rng)
}

fn public_app(services: &Services) -> App<impl AppFactory + use<>> {
    App::new()
        .app_data(services.config.clone())
        .app_data(services.clock_rng.clone())
        .app_data(services.store.clone())
        .app_data(services.limiters.clone())
        .app_data(services.concurrency_limit.clone())
        .app_data(services.upload_limiter.clone())
        .app_data(services.body_memory.clone())
        .app_data(services.node_wait_limiter.clone())
        .app_data(services.shutdown.clone())
        .app_data(services.plan_limits.clone())
        .app_data(services.abuse_limits.clone())
        .app_data(services.write_limiter.clone())
        .app_data(services.readiness.clone())
        .app_data(services.routing.reference.clone())
        .app_data(services.static_responses.clone())
        .configure(|app| services.contexts.register(app))
        .configure(|app| services.routing.public.configure(app))
        .wrap(from_fn(guard))
        .wrap(cors(&services.config))
        .wrap(from_fn(request_telemetry))
}

/// Returns the application of the internal listener.
pub fn internal_app(services: &Services) -> App<impl AppFactory + use<>> {
    App::new()
        .app_data(services.config.clone())
        .app_data(services.clock_rng.clone())
        .app_data(services.store.clone())
        .app_data(services.limiters.clone())
        .app_data(services.internal_concurrency_limit.clone())
        .app_data(services.upload_limiter.clone())
        .app_data(services.internal_body_memory.clone())
        .app_data(services.registry.clone())
        .configure(|app| services.contexts.register(app))
        .configure(|app| services.routing.internal.configure(app))
        .wrap(from_fn(guard))
        .wrap(from_fn(request_telemetry))
}
